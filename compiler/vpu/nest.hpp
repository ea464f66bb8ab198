// Loop nests (level K): what one fused elementwise / reduce kernel reads at which loop indices.
//   before   y = add(x, broadcast_in_dim(b))           x f32[25,512], b f32[512]
//   after    loops [25][512]; accesses x (512,1), b (0,1); node 0 = add(access 0, access 1)
// Views (broadcast, reshape, transpose, slice, reverse, window), iota and splat constants vanish
// into strides. Loops are merged maximally; with a reduce, exactly to the alternating kept /
// reduced runs of its input shape (with DimsAttrs::apart to kept runs and reduced dims), so that
// the order of a sum depends on shapes alone. A sum along the innermost run has one order for any
// kept loops around it, so these may stay apart.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "ir/graph.hpp"

namespace tpu::compiler {

// Element index of a value at loop indices i: offset + sum stride[l] * i[l].
struct View {
  int64_t offset = 0;
  Dims stride;
  bool operator==(const View&) const = default;
};

struct Loop {
  int64_t n = 1;
  bool reduced = false;
};

struct Operand {
  enum class Kind : uint8_t { kNode, kAccess, kIndex, kImmediate, kPartition };
  Kind kind = Kind::kImmediate;
  int index = 0;           // node, access or index number
  uint32_t immediate = 0;  // register bits of a splat
};

struct NestAccess {
  const Value* value = nullptr;  // a value that has a buffer
  View view;
};

struct Node {
  const Op* op = nullptr;
  std::vector<Operand> in;  // reduce: input, init value; view ops: the element itself
  bool copy = false;        // the op is a view, iota or constant: the node is its first operand
};

struct Nest {
  std::vector<Loop>
      loops;  // in the order of the domain's memory, outermost first; none for 1 element
  std::vector<NestAccess> accesses;
  std::vector<View> indexes;  // i32 affine values
  std::vector<Node> nodes;
  bool has_reduce = false;

  int64_t elements() const;
  View identity() const;         // row-major over all loops
  Dims reduced_strides() const;  // row-major over the kept loops, 0 in reduced ones
};

// Ops without arithmetic: views, iota, constants, partition_id. They are looked through.
bool is_cheap(Kind kind);

// Thrown when an operand cannot be read by strides: the value must get a buffer of its own.
struct NeedsCopy {
  const Value* value;
};

// Facts of the surroundings that a nest depends on.
struct NestContext {
  // True if the value is kept in a buffer although its op is a view.
  std::function<bool(const Value*)> is_copied;
};

// Builds the nest of `ops` (program order) over `domain`. Nothing if they do not fit together: a
// value of the nest is used other than element by element, or loops of a reduce cannot carry an
// access.
std::optional<Nest> build_nest(const std::vector<const Op*>& ops, const Dims& domain,
                               const NestContext& context);

// The buffer behind `value` and its strides along the value's dims. Throws NeedsCopy(value).
NestAccess resolve_view(const Value* value, const NestContext& context);

// Operand of an op through which loops see it, or the value itself: the root of a chain of views.
const Value* view_root(const Value* value, const NestContext& context);

// Bits of a splat constant (or of a constant with one element) in a vector register.
uint32_t register_bits(const Dense& constant);

}  // namespace tpu::compiler
