// Concatenation: each operand by one strided copy to its place in the result.
#include "emit/context.hpp"

namespace tpu::compiler {

void emit_concatenate(EmitContext& ctx, const Step& step) {
  const Kernel& k = *step.kernel;
  const Op& op = *k.ops[0];
  const Dims& dims = op.type().dims;
  const int64_t bytes = elem_bytes(op.type().elem);
  const auto dim = static_cast<size_t>(op.as<DimAttrs>().dim);
  int64_t outer = 1, inner = bytes;
  for (size_t d = 0; d < dims.size(); ++d) {
    (d < dim ? outer : inner) *= d == dim ? 1 : dims[d];
  }
  int64_t at = 0;
  for (size_t i = 0; i < k.reads.size(); ++i) {
    const int64_t run = op.operand_type(i).dims[dim] * inner;
    if (run > 0 && outer > 0) {
      ctx.sink.copy(place_of(step.places.at(k.reads[i])), place_of(step.places.at(k.out), at),
                    bytes, {{outer, run, dims[dim] * inner}, {run / bytes, bytes, bytes}},
                    step.op_id);
    }
    at += run;
  }
}

}  // namespace tpu::compiler
