// VHLO properties to graph attributes. Version 1 ops lack fields which version 2 has: the defaults
// stand here.
#include "import/op_attrs.hpp"

#include <algorithm>
#include <iterator>

#include "import/codes.hpp"
#include "import/process_groups.hpp"
#include "import/sharding.hpp"

namespace tpu::compiler::frontend {
namespace {

namespace vt = bytecode::vhlo_type;

Dims dims_or_empty(const OpReader& op, std::string_view name) {
  return op.has(name) ? op.dims(name) : Dims{};
}

void split_padding(const OpReader& op, Dims& low, Dims& high) {
  for (const Dims& row : op.matrix("padding")) {
    if (row.size() != 2) {
      op.fail("the property 'padding' must be N x 2");
    }
    low.push_back(row[0]);
    high.push_back(row[1]);
  }
}

// A dot algorithm (JAX presets such as BF16_BF16_F32_X3) says how many bf16 passes there are.
void algorithm(const OpReader& op, DotAttrs& a) {
  if (!op.has("lhs_precision_type")) {
    return;
  }
  const auto type_code = [&](std::string_view name) {
    const auto& attr = op.tables().attr(op.property(name));
    return attr.type == bytecode::kNone ? vt::kNone : op.tables().raw().types[attr.type].code;
  };
  const uint32_t lhs = type_code("lhs_precision_type");
  const uint32_t rhs = type_code("rhs_precision_type");
  if (lhs == vt::kNone && rhs == vt::kNone) {
    return;
  }
  const auto passes = op.tables().integer(op.property("num_primitive_operations")).value_or(0);
  if (lhs == vt::kF64 && rhs == lhs && type_code("accumulation_type") == lhs && passes == 1 &&
      op.type(op.raw().result_types.at(0)).elem == Elem::kF64) {
    a.lhs_precision = a.rhs_precision = Precision::kHighest;  // products of f64 have no other
    return;
  }
  if (lhs != rhs || type_code("accumulation_type") != vt::kF32) {
    op.fail("this dot algorithm is not supported; use precision default, high or highest");
  }
  if (lhs == vt::kF32 && passes == 1) {
    a.lhs_precision = a.rhs_precision = Precision::kHighest;
  } else if (lhs == vt::kBf16 && (passes == 1 || passes == 3 || passes == 6)) {
    a.lhs_precision = a.rhs_precision = passes == 1   ? Precision::kDefault
                                        : passes == 3 ? Precision::kHigh
                                                      : Precision::kHighest;
  } else {
    op.fail("this dot algorithm is not supported; use precision default, high or highest");
  }
}

DotAttrs dot(const OpReader& op) {
  DotAttrs a;
  a.lhs_batch = op.dims("lhs_batching_dimensions");
  a.rhs_batch = op.dims("rhs_batching_dimensions");
  a.lhs_contract = op.dims("lhs_contracting_dimensions");
  a.rhs_contract = op.dims("rhs_contracting_dimensions");
  precisions(op, a.lhs_precision, a.rhs_precision);
  algorithm(op, a);
  return a;
}

ConvAttrs conv(Kind kind, const OpReader& op) {
  ConvAttrs a;
  a.window_stride = op.dims("window_strides");
  if (kind == Kind::kConvolution) {  // dynamic_conv has it as an operand
    split_padding(op, a.pad_low, a.pad_high);
  }
  a.lhs_dilation = op.dims("lhs_dilation");
  a.rhs_dilation = op.dims("rhs_dilation");
  for (const int64_t r : op.dims("window_reversal")) {
    a.window_reversal.push_back(r != 0);
  }
  a.input_batch = op.integer("input_batch_dimension");
  a.input_feature = op.integer("input_feature_dimension");
  a.input_spatial = op.dims("input_spatial_dimensions");
  a.kernel_input_feature = op.integer("kernel_input_feature_dimension");
  a.kernel_output_feature = op.integer("kernel_output_feature_dimension");
  a.kernel_spatial = op.dims("kernel_spatial_dimensions");
  a.output_batch = op.integer("output_batch_dimension");
  a.output_feature = op.integer("output_feature_dimension");
  a.output_spatial = op.dims("output_spatial_dimensions");
  a.feature_groups = op.integer("feature_group_count");
  a.batch_groups = op.integer("batch_group_count");
  precisions(op, a.lhs_precision, a.rhs_precision);
  return a;
}

WindowAttrs window(Kind kind, const OpReader& op) {
  WindowAttrs a;
  a.size = op.dims("window_dimensions");
  a.stride = op.dims("window_strides");
  split_padding(op, a.pad_low, a.pad_high);
  if (kind == Kind::kReduceWindow) {
    a.base_dilation = op.dims("base_dilations");
    a.window_dilation = op.dims("window_dilations");
  } else {
    a.base_dilation = a.window_dilation = Dims(a.size.size(), 1);
  }
  return a;
}

GatherAttrs gather(const OpReader& op) {
  GatherAttrs a;
  a.offset_dims = op.dims("offset_dims");
  a.collapsed_slice_dims = op.dims("collapsed_slice_dims");
  a.operand_batching_dims = dims_or_empty(op, "operand_batching_dims");
  a.start_indices_batching_dims = dims_or_empty(op, "start_indices_batching_dims");
  a.start_index_map = op.dims("start_index_map");
  a.slice_sizes = dims_or_empty(op, "slice_sizes");  // dynamic_gather has them as an operand
  a.index_vector_dim = op.integer("index_vector_dim");
  a.indices_are_sorted = op.boolean("indices_are_sorted");
  return a;
}

ScatterAttrs scatter(const OpReader& op) {
  ScatterAttrs a;
  a.update_window_dims = op.dims("update_window_dims");
  a.inserted_window_dims = op.dims("inserted_window_dims");
  a.input_batching_dims = dims_or_empty(op, "input_batching_dims");
  a.scatter_indices_batching_dims = dims_or_empty(op, "scatter_indices_batching_dims");
  a.scatter_dims_to_operand_dims = op.dims("scatter_dims_to_operand_dims");
  a.index_vector_dim = op.integer("index_vector_dim");
  a.indices_are_sorted = op.boolean("indices_are_sorted");
  a.unique_indices = op.boolean("unique_indices");
  return a;
}

// Ids of the rows of replica_groups; -1 fills up those of groups that are smaller than others.
Groups listed_groups(const OpReader& op, const ShardingReader* meshes) {
  if (meshes != nullptr && meshes->is_groups(op.property("replica_groups"))) {
    return meshes->groups(op, op.property("replica_groups"));
  }
  Groups listed;
  for (const Dims& row : op.matrix("replica_groups")) {
    std::vector<int64_t> group;
    std::copy_if(row.begin(), row.end(), std::back_inserter(group),
                 [](int64_t id) { return id != -1; });
    if (!group.empty()) {
      listed.push_back(std::move(group));
    }
  }
  return listed;
}

CollectiveAttrs collective(Kind kind, const OpReader& op, const CoreCounts& cores,
                           const ShardingReader* meshes) {
  CollectiveAttrs a;
  a.channel = op.integer("channel_id");
  if (op.has("has_dynamic_root") && op.boolean("has_dynamic_root")) {
    op.fail("a root that the program computes is not supported; the root is the first of a group");
  }
  a.groups = process_groups(kind, op, listed_groups(op, meshes), cores);
  if (kind == Kind::kAllGather) {
    a.dim = op.integer("all_gather_dim");
  } else if (kind == Kind::kReduceScatter) {
    a.dim = op.integer("scatter_dimension");
  } else if (kind == Kind::kAllToAll) {
    a.dim = op.integer("split_dimension");
    a.concat_dim = op.integer("concat_dimension");
    a.split_count = op.integer("split_count");
  }
  return a;
}

PermuteAttrs permute(const OpReader& op, const CoreCounts& cores) {
  PermuteAttrs a;
  a.channel = op.integer("channel_id");
  Groups pairs;
  for (const Dims& row : op.matrix("source_target_pairs")) {
    if (row.size() != 2) {
      op.fail("the property 'source_target_pairs' must be N x 2");
    }
    pairs.push_back({row[0], row[1]});
  }
  if (!pairs.empty()) {
    for (const auto& pair : process_groups(Kind::kCollectivePermute, op, pairs, cores)) {
      a.pairs.push_back({pair[0], pair[1]});
    }
  }
  return a;
}

RngAttrs rng(Kind kind, const OpReader& op) {
  static const char* const kAlgorithms[] = {"default", "three_fry", "philox"};
  static const char* const kDistributions[] = {"", "uniform", "normal"};
  if (kind == Kind::kRng) {
    return {kDistributions[op.enumeration("rng_distribution", 2)]};
  }
  return {kAlgorithms[op.enumeration("rng_algorithm", 2)]};
}

TriangularSolveAttrs triangular_solve(const OpReader& op) {
  constexpr int64_t kNoTranspose = 1, kAdjoint = 3;
  const int64_t transpose = op.enumeration("transpose_a", kAdjoint);
  return {.left = op.boolean("left_side"),
          .lower = op.boolean("lower"),
          .transpose = transpose > kNoTranspose,
          .conjugate = transpose == kAdjoint,
          .unit_diagonal = op.boolean("unit_diagonal")};
}

}  // namespace

void precisions(const OpReader& op, Precision& lhs, Precision& rhs) {
  const auto list = op.tables().array(op.property("precision_config"));
  if (!list || list->empty()) {
    return;
  }
  const auto one = [&](uint32_t attr_index) {
    const auto& a = op.tables().attr(attr_index);
    if (a.ints.size() != 1 || a.ints[0] < 0 || a.ints[0] > 2) {
      op.fail(
          "the property 'precision_config' has an unknown value: expected DEFAULT, HIGH or "
          "HIGHEST");
    }
    return static_cast<Precision>(a.ints[0]);
  };
  lhs = one(list->front());
  rhs = one(list->back());
}

// A table: what each kind has, with the names that VHLO gives its properties.
Attrs convert_attrs(Kind kind, const OpReader& op, const CoreCounts& cores,
                    const ShardingReader* meshes) {
  switch (kind) {
    case Kind::kConstant:
      return ConstantAttrs{op.dense(op.property("value"))};
    case Kind::kIota:
      return DimAttrs{op.integer("iota_dimension")};
    case Kind::kConcatenate:
    case Kind::kSetDimensionSize:
      return DimAttrs{op.integer("dimension")};
    case Kind::kBroadcastInDim:
      return DimsAttrs{op.dims("broadcast_dimensions")};
    case Kind::kTranspose:
      return DimsAttrs{op.dims("permutation")};
    case Kind::kReduce:
    case Kind::kReverse:
    case Kind::kMap:
      return DimsAttrs{op.dims("dimensions")};
    case Kind::kDynamicSlice:
      return DimsAttrs{op.dims("slice_sizes")};
    case Kind::kCompare:
      return CompareAttrs{static_cast<CompareDirection>(op.enumeration("comparison_direction", 5)),
                          static_cast<CompareType>(op.enumeration("compare_type", 4))};
    case Kind::kDotGeneral:
      return dot(op);
    case Kind::kConvolution:
    case Kind::kDynamicConv:
      return conv(kind, op);
    case Kind::kFft:
      return FftAttrs{static_cast<FftType>(op.enumeration("fft_type", 3)), op.dims("fft_length")};
    case Kind::kSlice:
      return SliceAttrs{op.dims("start_indices"), op.dims("limit_indices"), op.dims("strides")};
    case Kind::kPad:
      return PadAttrs{op.dims("edge_padding_low"), op.dims("edge_padding_high"),
                      op.dims("interior_padding")};
    case Kind::kReduceWindow:
    case Kind::kSelectAndScatter:
      return window(kind, op);
    case Kind::kGather:
      return gather(op);
    case Kind::kScatter:
      return scatter(op);
    case Kind::kSort:
      return SortAttrs{op.integer("dimension"), op.boolean("is_stable")};
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
    case Kind::kAllGather:
    case Kind::kAllToAll:
    case Kind::kCollectiveBroadcast:
      return collective(kind, op, cores, meshes);
    case Kind::kCollectivePermute:
      return permute(op, cores);
    case Kind::kBatchNormTraining:
    case Kind::kBatchNormInference:
    case Kind::kBatchNormGrad:
      return BatchNormAttrs{op.number("epsilon"), op.integer("feature_index")};
    case Kind::kReducePrecision:
      return ReducePrecisionAttrs{op.integer("exponent_bits"), op.integer("mantissa_bits")};
    case Kind::kRng:
    case Kind::kRngBitGenerator:
      return rng(kind, op);
    case Kind::kCholesky:
      return CholeskyAttrs{op.boolean("lower")};
    case Kind::kTriangularSolve:
      return triangular_solve(op);
    case Kind::kCall:
      return CallAttrs{op.text("callee"), ""};
    case Kind::kComposite:
      return CallAttrs{op.text("decomposition"), op.text("name")};
    case Kind::kCustomCall:
      return CustomCallAttrs{op.text("call_target_name"), "", op.boolean("has_side_effect")};
    default:  // the verifier rejects kinds that need others
      return NoAttrs{};
  }
}

}  // namespace tpu::compiler::frontend
