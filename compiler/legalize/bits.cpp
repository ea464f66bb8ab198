// Bit casts between types of different sizes: shifts of the larger type's words.
//   before   y = bitcast_convert(x) : ui32[4] -> ui8[4,4]
//   after    y = convert(x >> iota * 8)
#include "legalize/builder.hpp"
#include "legalize/legalize.hpp"

namespace tpu::compiler::legalization {

namespace {

Elem unsigned_of(int64_t bytes) {
  return bytes == 1 ? Elem::kU8 : bytes == 2 ? Elem::kU16 : Elem::kU32;
}

}  // namespace

std::vector<Value*> bitcast(Op& op, Rewriter& rw) {
  Builder b(rw);
  Value* x = op.operands[0];
  const Type& to = op.type();
  const int64_t from_bytes = elem_bytes(x->type.elem), to_bytes = elem_bytes(to.elem);
  if (from_bytes == to_bytes || from_bytes > 4 || to_bytes > 4) {
    return {};
  }
  const Elem from_word = unsigned_of(from_bytes), to_word = unsigned_of(to_bytes);
  x = b.bitcast(x, {from_word, x->type.dims});
  if (from_bytes > to_bytes) {
    Dims where;
    for (int64_t d = 0; d < x->type.rank(); ++d) {
      where.push_back(d);
    }
    const Type spread{from_word, to.dims};
    Value* word = b.broadcast(x, to.dims, where);
    Value *bits = b.splat_int(spread, 8 * to_bytes), *number = b.iota(spread, to.rank() - 1);
    Value* shift = b.mul(number, bits);
    word = b.binary(Kind::kShiftRightLogical, word, shift);
    return {b.bitcast(b.convert(word, to_word), to)};
  }
  const int64_t last = x->type.rank() - 1;
  const Type word{to_word, to.dims};
  Value* out = nullptr;
  for (int64_t i = 0; i < to_bytes / from_bytes; ++i) {
    Value* part = b.convert(b.reshape(b.slice_dim(x, last, i, i + 1), to.dims), to_word);
    if (i > 0) {
      part = b.binary(Kind::kShiftLeft, part, b.splat_int(word, 8 * from_bytes * i));
    }
    out = out == nullptr ? part : b.logical_or(out, part);
  }
  return {b.bitcast(out, to)};
}

}  // namespace tpu::compiler::legalization
