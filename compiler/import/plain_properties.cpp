// Which attributes the bytecode stores for each op of the dialects stablehlo and func: see
// plain_form.hpp. The order is alphabetical, as in op_properties.cpp.
#include <unordered_map>

#include "import/plain_form.hpp"

namespace tpu::compiler::bytecode {
namespace {

struct PlainLine {
  std::string_view ops;
  std::string_view properties;  // lists of several versions are separated by '|'
};

#define TPU_PLAIN_CONV_HEAD "batch_group_count dimension_numbers feature_group_count lhs_dilation? "
#define TPU_PLAIN_CONV_TAIL "precision_config? rhs_dilation? window_reversal? window_strides?"
#define TPU_PLAIN_CUSTOM_CALL                                           \
  "api_version? backend_config? call_target_name called_computations? " \
  "has_side_effect? operand_layouts? output_operand_aliases? result_layouts?"

constexpr PlainLine kPlainStablehlo[] = {
    {"cbrt cosine exponential exponential_minus_one log log_plus_one logistic rsqrt sine sqrt tan "
     "tanh",
     "result_accuracy?|"},
    {"all_gather", "all_gather_dim channel_handle? replica_groups use_global_device_ids?"},
    {"all_reduce", "channel_handle? replica_groups use_global_device_ids?"},
    {"all_to_all", "channel_handle? concat_dimension replica_groups split_count split_dimension"},
    {"batch_norm_grad batch_norm_inference batch_norm_training", "epsilon feature_index"},
    {"broadcast", "broadcast_sizes"},
    {"broadcast_in_dim", "broadcast_dimensions"},
    {"cholesky", "lower?"},
    {"collective_broadcast",
     "channel_handle? replica_groups|channel_handle? has_dynamic_root? replica_groups"},
    {"collective_permute", "channel_handle? source_target_pairs"},
    {"collective_reduce",
     "channel_handle? has_dynamic_root? replica_groups use_global_device_ids?"},
    {"compare", "compare_type? comparison_direction"},
    {"composite", "composite_attributes? decomposition name version?"},
    {"concatenate", "dimension"},
    {"constant", "value"},
    {"convolution", TPU_PLAIN_CONV_HEAD "padding? " TPU_PLAIN_CONV_TAIL},
    {"cross-replica-sum", "replica_groups"},
    {"custom_call", TPU_PLAIN_CUSTOM_CALL "|" TPU_PLAIN_CUSTOM_CALL " result_tilings?"},
    {"dot", "precision_config?"},
    {"dot_general",
     "algorithm? dot_dimension_numbers precision_config?|dot_dimension_numbers precision_config?"},
    {"dynamic_broadcast_in_dim",
     "broadcast_dimensions known_expanding_dimensions? known_nonexpanding_dimensions?"},
    {"dynamic_conv", TPU_PLAIN_CONV_HEAD TPU_PLAIN_CONV_TAIL},
    {"dynamic_gather", "dimension_numbers indices_are_sorted?"},
    {"dynamic_iota iota", "iota_dimension"},
    {"dynamic_slice", "slice_sizes"},
    {"einsum unary_einsum", "einsum_config"},
    {"fft", "fft_length fft_type"},
    {"gather", "dimension_numbers indices_are_sorted? slice_sizes"},
    {"get_dimension_size set_dimension_size", "dimension"},
    {"get_tuple_element", "index"},
    {"infeed", "infeed_config? layout?"},
    {"outfeed", "outfeed_config?"},
    {"map reduce reverse", "dimensions"},
    {"pad", "edge_padding_high edge_padding_low interior_padding"},
    {"recv send",
     "channel_handle is_host_transfer?|channel_handle is_host_transfer? source_target_pairs?"},
    {"reduce_precision", "exponent_bits mantissa_bits"},
    {"reduce_scatter", "channel_handle? replica_groups scatter_dimension use_global_device_ids?"},
    {"reduce_window",
     "base_dilations? padding? window_dilations? window_dimensions window_strides?"},
    {"rng", "rng_distribution"},
    {"rng_bit_generator", "rng_algorithm"},
    {"scatter", "indices_are_sorted? scatter_dimension_numbers unique_indices?"},
    {"select_and_scatter", "padding? window_dimensions? window_strides?"},
    {"slice", "limit_indices start_indices strides"},
    {"sort", "dimension? is_stable?"},
    {"torch_index_select", "batch_dims dim"},
    {"transpose", "permutation"},
    {"triangular_solve", "left_side lower transpose_a unit_diagonal"},
};

constexpr PlainLine kPlainFunc[] = {
    {"func",
     "arg_attrs? function_type no_inline? res_attrs? sym_name sym_visibility?|"
     "arg_attrs? function_type res_attrs? sym_name sym_visibility?"},
    {"call", "arg_attrs? callee no_inline? res_attrs?|callee no_inline?|callee"},
};

constexpr PlainLine kPlainChlo[] = {
    {"constant", "value"},
    {"top_k", "k"},
};

std::vector<std::string_view> plain_parts(std::string_view text, char between) {
  std::vector<std::string_view> all;
  for (size_t end = 0; end != std::string_view::npos;) {
    end = text.find(between);
    all.push_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return all;
}

using PlainLists = std::vector<std::vector<std::string_view>>;
using PlainTable = std::unordered_map<std::string_view, PlainLists>;

PlainTable make_plain_table(std::span<const PlainLine> lines) {
  PlainTable table;
  for (const PlainLine& line : lines) {
    PlainLists lists;
    for (const std::string_view list : plain_parts(line.properties, '|')) {
      lists.push_back(list.empty() ? std::vector<std::string_view>{} : plain_parts(list, ' '));
    }
    for (const std::string_view op : plain_parts(line.ops, ' ')) {
      table.emplace(op, lists);
    }
  }
  return table;
}

}  // namespace

std::vector<std::vector<std::string_view>> plain_properties(Dialect dialect,
                                                            std::string_view name) {
  static const PlainTable stablehlo =
      make_plain_table(kPlainStablehlo);  // immutable after the first use
  static const PlainTable func = make_plain_table(kPlainFunc);
  static const PlainTable chlo = make_plain_table(kPlainChlo);
  const PlainTable& table = dialect == Dialect::kFunc   ? func
                            : dialect == Dialect::kChlo ? chlo
                                                        : stablehlo;
  const auto it = table.find(name);
  return it == table.end() ? PlainLists{} : it->second;
}

}  // namespace tpu::compiler::bytecode
