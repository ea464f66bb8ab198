// See rules.hpp: what an op on parts has for attributes, and what cores must not combine twice.
#include "partition/rules/rules.hpp"

namespace tpu::compiler {
namespace {

SliceAttrs local_slice(SliceAttrs a, const Type& whole, const Type& local) {
  for (size_t d = 0; d < local.dims.size(); ++d) {
    if (local.dims[d] != whole.dims[d]) {
      a.limit[d] = a.start[d] + (local.dims[d] - 1) * a.stride[d] + 1;
    }
  }
  return a;
}

// Of the operand's dimensions only those of whole windows and batching ones (windows of 1) are cut.
GatherAttrs local_gather(GatherAttrs a, const Type& whole, const Type& local) {
  for (size_t d = 0; d < local.dims.size(); ++d) {
    if (local.dims[d] != whole.dims[d] && a.slice_sizes[d] == whole.dims[d]) {
      a.slice_sizes[d] = local.dims[d];
    }
  }
  return a;
}

ConvAttrs local_convolution(ConvAttrs a, const Type& input, const Type& kernel,
                            const Type& output) {
  const auto size = [](const Type& t, int64_t d) { return t.dims[static_cast<size_t>(d)]; };
  if (a.feature_groups > 1) {
    a.feature_groups = size(input, a.input_feature) / size(kernel, a.kernel_input_feature);
  }
  if (a.batch_groups > 1) {
    a.batch_groups = size(input, a.input_batch) / size(output, a.output_batch);
  }
  return a;
}

}  // namespace

Attrs local_attrs(const Op& op, const std::vector<Type>& local_operands,
                  const std::vector<Type>& local_results) {
  switch (op.kind) {
    case Kind::kConstant: {
      ConstantAttrs a = op.as<ConstantAttrs>();
      a.value.type = local_results[0];
      return a;
    }
    case Kind::kSlice:
      return local_slice(op.as<SliceAttrs>(), op.type(), local_results[0]);
    case Kind::kDynamicSlice:
      return DimsAttrs{local_results[0].dims};
    case Kind::kGather:
      return local_gather(op.as<GatherAttrs>(), op.operand_type(0), local_operands[0]);
    case Kind::kConvolution:
      return local_convolution(op.as<ConvAttrs>(), local_operands[0], local_operands[1],
                               local_results[0]);
      TPU_CASES(ELEMENTWISE, BODY, CONTROL, COLLECTIVE, HOST, WHOLE, MATRIX, CALL, SIZED, GLOBAL,
                END)
    case Kind::kIota:
    case Kind::kPartitionId:
    case Kind::kReplicaId:
    case Kind::kBroadcastInDim:
    case Kind::kConcatenate:
    case Kind::kDynamicUpdateSlice:
    case Kind::kPad:
    case Kind::kReshape:
    case Kind::kReverse:
    case Kind::kTranspose:
    case Kind::kWindow:
    case Kind::kOptimizationBarrier:
    case Kind::kDotGeneral:
    case Kind::kFft:
      return op.attrs;
  }
  return op.attrs;
}

std::optional<size_t> combined_once(const Op& op, Kind reducer) {
  const bool once_more_counts =
      reducer == Kind::kAdd || reducer == Kind::kMultiply || reducer == Kind::kXor;
  if (!once_more_counts || (op.kind != Kind::kReduce && op.kind != Kind::kScatter)) {
    return std::nullopt;
  }
  return op.kind == Kind::kReduce ? 1 : 0;
}

Dense identity_of(Kind reducer, const Type& type) {
  if (reducer == Kind::kMultiply) {
    return make_splat(type, 1);
  }
  return make_splat(type, is_float(type.elem) ? -0.0 : 0.0);
}

bool is_identity(Kind reducer, const Dense& value) {
  const bool one_value = value.splat || value.type.count() == 1;
  return one_value && value.as_double(0) == identity_of(reducer, value.type).as_double(0);
}

}  // namespace tpu::compiler
