// Which attributes the bytecode stores for each op, in the order in which they are stored
// (alphabetical). One line covers all versions with the same list: "v1" or "v1 v2". An op that is
// missing here is unknown.
#include <array>
#include <sstream>
#include <string>
#include <unordered_map>

#include "import/bytecode.hpp"

namespace tpu::compiler::bytecode {
namespace {

struct Line {
  std::string_view ops;       // names without version, separated by spaces
  std::string_view versions;  // "v1 v2"
  std::string_view properties;
};

#define TPU_GATHER_HEAD "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims "
#define TPU_CONV_TAIL "precision_config rhs_dilation window_reversal window_strides"
#define TPU_CONV_HEAD                                                                        \
  "batch_group_count feature_group_count input_batch_dimension input_feature_dimension "     \
  "input_spatial_dimensions kernel_input_feature_dimension kernel_output_feature_dimension " \
  "kernel_spatial_dimensions lhs_dilation output_batch_dimension output_feature_dimension "  \
  "output_spatial_dimensions "

constexpr Line kVhlo[] = {
    {"abs add after_all and async_done async_start atan2 bitcast_convert case ceil clamp complex "
     "convert "
     "count_leading_zeros create_token divide dynamic_pad dynamic_reshape dynamic_update_slice "
     "floor if "
     "imag is_finite maximum minimum multiply negate not optimization_barrier or partition_id "
     "popcnt power "
     "real_dynamic_slice real remainder replica_id reshape return round_nearest_afz "
     "round_nearest_even "
     "select shift_left shift_right_arithmetic shift_right_logical sign subtract tuple "
     "uniform_dequantize "
     "uniform_quantize while xor",
     "v1", ""},
    {"cbrt cosine exponential_minus_one log_plus_one log logistic rsqrt sine sqrt tanh tan "
     "exponential",
     "v1", ""},
    {"cbrt cosine exponential_minus_one log_plus_one log logistic rsqrt sine sqrt tanh tan "
     "exponential",
     "v2", "result_accuracy"},
    {"all_gather", "v1 v2", "all_gather_dim channel_id replica_groups use_global_device_ids"},
    {"all_reduce", "v1 v2", "channel_id replica_groups use_global_device_ids"},
    {"all_to_all", "v1 v2",
     "channel_id concat_dimension replica_groups split_count split_dimension"},
    {"batch_norm_grad batch_norm_inference batch_norm_training", "v1", "epsilon feature_index"},
    {"broadcast_in_dim", "v1", "broadcast_dimensions"},
    {"broadcast", "v1", "broadcast_sizes"},
    {"call", "v1", "callee"},
    {"cholesky", "v1", "lower"},
    {"collective_broadcast", "v1", "channel_id replica_groups"},
    {"collective_broadcast", "v2", "channel_id has_dynamic_root replica_groups"},
    {"collective_permute", "v1", "channel_id source_target_pairs"},
    {"collective_reduce", "v1", "channel_id has_dynamic_root replica_groups use_global_device_ids"},
    {"compare", "v1", "compare_type comparison_direction"},
    {"composite", "v1 v2", "composite_attributes decomposition name version"},
    {"concatenate", "v1", "dimension"},
    {"constant", "v1", "value"},
    {"convolution", "v1", TPU_CONV_HEAD "padding " TPU_CONV_TAIL},
    {"dynamic_conv", "v1", TPU_CONV_HEAD "padding " TPU_CONV_TAIL},
    {"dynamic_conv", "v2", TPU_CONV_HEAD TPU_CONV_TAIL},
    {"cross-replica-sum", "v1", "replica_groups"},
    {"custom_call", "v1",
     "api_version backend_config call_target_name called_computations has_side_effect "
     "operand_layouts "
     "output_operand_aliases result_layouts"},
    {"custom_call", "v2",
     "api_version backend_config call_target_name called_computations has_side_effect "
     "operand_layouts "
     "output_operand_aliases result_layouts result_tilings"},
    {"dot_general", "v1",
     "lhs_batching_dimensions lhs_contracting_dimensions precision_config rhs_batching_dimensions "
     "rhs_contracting_dimensions"},
    {"dot_general", "v2",
     "accumulation_type allow_imprecise_accumulation lhs_batching_dimensions lhs_component_count "
     "lhs_contracting_dimensions lhs_precision_type num_primitive_operations precision_config "
     "rhs_batching_dimensions rhs_component_count rhs_contracting_dimensions rhs_precision_type"},
    {"dot", "v1", "precision_config"},
    {"dynamic_broadcast_in_dim", "v1",
     "broadcast_dimensions known_expanding_dimensions known_nonexpanding_dimensions"},
    {"dynamic_gather", "v1", TPU_GATHER_HEAD "start_index_map"},
    {"dynamic_gather", "v2",
     TPU_GATHER_HEAD "operand_batching_dims start_index_map start_indices_batching_dims"},
    {"gather", "v1", TPU_GATHER_HEAD "slice_sizes start_index_map"},
    {"gather", "v2",
     TPU_GATHER_HEAD
     "operand_batching_dims slice_sizes start_index_map start_indices_batching_dims"},
    {"dynamic_iota iota", "v1", "iota_dimension"},
    {"dynamic_slice", "v1", "slice_sizes"},
    {"einsum unary_einsum", "v1", "einsum_config"},
    {"fft", "v1", "fft_length fft_type"},
    {"func", "v1", "arg_attrs function_type res_attrs sym_name sym_visibility"},
    {"get_dimension_size set_dimension_size", "v1", "dimension"},
    {"get_tuple_element", "v1", "index"},
    {"infeed", "v1", "infeed_config layout"},
    {"outfeed", "v1", "outfeed_config"},
    {"map reduce reverse", "v1", "dimensions"},
    {"pad", "v1", "edge_padding_high edge_padding_low interior_padding"},
    {"recv send", "v1", "channel_id channel_type is_host_transfer"},
    {"recv send", "v2", "channel_id channel_type is_host_transfer source_target_pairs"},
    {"reduce_precision", "v1", "exponent_bits mantissa_bits"},
    {"reduce_scatter", "v1", "channel_id replica_groups scatter_dimension use_global_device_ids"},
    {"reduce_window", "v1",
     "base_dilations padding window_dilations window_dimensions window_strides"},
    {"rng_bit_generator", "v1", "rng_algorithm"},
    {"rng", "v1", "rng_distribution"},
    {"scatter", "v1",
     "index_vector_dim indices_are_sorted inserted_window_dims scatter_dims_to_operand_dims "
     "unique_indices update_window_dims"},
    {"scatter", "v2",
     "index_vector_dim indices_are_sorted input_batching_dims inserted_window_dims "
     "scatter_dims_to_operand_dims scatter_indices_batching_dims unique_indices "
     "update_window_dims"},
    {"select_and_scatter", "v1", "padding window_dimensions window_strides"},
    {"slice", "v1", "limit_indices start_indices strides"},
    {"sort", "v1", "dimension is_stable"},
    {"torch_index_select", "v1", "batch_dims dim"},
    {"transpose", "v1", "permutation"},
    {"triangular_solve", "v1", "left_side lower transpose_a unit_diagonal"},
};

constexpr Line kSdy[] = {
    {"mesh", "", "mesh sym_name"},
    {"manual_computation", "", "in_shardings manual_axes out_shardings"},
    {"sharding_constraint reshard", "", "sharding"},
    {"sharding_group", "", "group_id"},
    {"return", "", ""},
};

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t end = text.find(' ');
    const std::string_view word = text.substr(0, end);
    if (!word.empty()) {
      out.push_back(word);
    }
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return out;
}

using Table = std::unordered_map<std::string, std::vector<std::string_view>>;

Table make_table(std::span<const Line> lines) {
  Table table;
  for (const Line& line : lines) {
    std::vector<std::string_view> versions = words(line.versions);
    for (const std::string_view op : words(line.ops)) {
      if (versions.empty()) {
        table.emplace(op, words(line.properties));
      }
      for (const std::string_view v : versions) {
        table.emplace(std::string(op) + "_" + std::string(v), words(line.properties));
      }
    }
  }
  return table;
}

}  // namespace

const std::vector<std::string_view>* op_properties(Dialect dialect, std::string_view name) {
  static const Table vhlo = make_table(kVhlo);  // immutable after the first use
  static const Table sdy = make_table(kSdy);
  static const std::vector<std::string_view> none;
  if (dialect == Dialect::kBuiltin) {
    return name == "unrealized_conversion_cast" ? &none : nullptr;
  }
  if (dialect != Dialect::kSdy && dialect != Dialect::kVhlo) {
    return nullptr;
  }
  const Table& table = dialect == Dialect::kSdy ? sdy : vhlo;
  const auto it = table.find(std::string(name));
  return it == table.end() ? nullptr : &it->second;
}

}  // namespace tpu::compiler::bytecode

namespace tpu::compiler::frontend {

using bytecode::Dialect;

std::string base_name(std::string_view name) {
  const size_t at = name.rfind("_v");
  if (at == std::string_view::npos || at + 2 == name.size() ||
      name.find_first_not_of("0123456789", at + 2) != std::string_view::npos) {
    return std::string(name);
  }
  return std::string(name.substr(0, at));
}

std::string display_name(const bytecode::RawOp& op) {
  switch (op.dialect) {
    case Dialect::kVhlo:
      return base_name(op.name) == "func" ? "func" : "stablehlo." + base_name(op.name);
    default:
      return std::string(op.dialect_name) + "." + std::string(op.name);
  }
}

}  // namespace tpu::compiler::frontend
