// Evaluates single ops on plain arrays: the semantics of the graph, for the
// interpreter and for constant folding. Shapes are taken as verified. Float results are canonical
// only while a spec::ScopedFlushMode is alive (the callers' duty). Ops with regions and collectives
// are the interpreter's.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "arith/mxu_shape.hpp"
#include "ir/graph.hpp"

namespace tpu::compiler {

// Row-major, memory layout of the core (i1 is one byte).
struct Tensor {
  Type type;
  std::vector<std::byte> data;  // type.bytes() bytes
};

Tensor make_tensor(const Type& type);  // zeros
Tensor to_tensor(const Dense& dense);
Dense to_dense(Tensor tensor);

enum class DotMode : uint8_t {
  kMxuLaw,    // operands rounded to bf16, sums in the order of the matrix unit
  kDouble,    // operands rounded to bf16, sums in double: free of the order of sums
  kUnrounded  // operands as they are, sums in double: what plain f32 arithmetic means
};
struct EvalOptions {
  DotMode dots = DotMode::kMxuLaw;
  spec::MxuShape mxu;
};

using Tensors = std::vector<const Tensor*>;

// True if constants of the kind are folded.
bool can_eval(Kind kind);

// Evaluates an op without regions; one result. An op which the interpreter lacks is a
// compiler::Error.
Tensor eval_op(const Op& op, const Tensors& operands, const EvalOptions& options);

// Groups of eval_op, by file. Private to ir/.
namespace eval {
Tensor elementwise(const Op& op, const Tensors& operands, const Dims& result_dims);
Tensor shape(const Op& op, const Tensors& operands);
Tensor gather(const Op& op, const Tensors& operands);
Tensor indexed_move(const Op& op, const Tensors& operands);  // indexed_read, indexed_write
// scatter and indexed_combine. `body` makes new elements of (old.., updates..), one array each.
using CombineBody = std::function<std::vector<Tensor>(const std::vector<const Tensor*>&)>;
std::vector<Tensor> scatter(const Op& op, const Tensors& operands, const CombineBody& body);
int64_t scatter_window_elements(const Op& op);
Tensor dot(const Op& op, const Tensors& operands, const EvalOptions& options);
Tensor convolution(const Op& op, const Tensors& operands, const EvalOptions& options);
}  // namespace eval

}  // namespace tpu::compiler
