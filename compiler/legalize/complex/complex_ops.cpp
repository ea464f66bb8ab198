// See complex_ops.hpp. Matrices are in complex_linalg.cpp.
#include "legalize/complex/complex_ops.hpp"

#include <array>
#include <functional>
#include <numeric>

namespace tpu::compiler {
namespace {

using Product = std::function<Value*(Value*, Value*)>;

Complex by_products(const Complex& a, const Complex& b, const Product& product, Rewriter& rw) {
  Builder math(rw);
  const bool real_a = is_zero(a.im), real_b = is_zero(b.im);
  Value* re = product(a.re, b.re);
  if (real_a && real_b) {
    return {re, math.zeros_like(re)};
  }
  if (real_a || real_b) {
    return {re, real_a ? product(a.re, b.im) : product(a.im, b.re)};
  }
  re = math.sub(re, product(a.im, b.im));
  Value *im_re = product(a.im, b.re), *re_im = product(a.re, b.im);
  return {re, math.add(re_im, im_re)};
}

Complex contraction(const Op& op, const Complex& a, const Complex& b, Rewriter& rw) {
  const Product product = [&](Value* x, Value* y) {
    return rw.make(op.kind, {x, y}, part_type(op.type()), op.attrs);
  };
  return by_products(a, b, product, rw);
}

bool takes_update(const Region& body) {
  const Op* ret = body.terminator();
  return body.ops.size() == 1 && ret != nullptr && ret->operands.size() == 1 &&
         body.args.size() == 2 && ret->operands[0] == body.args[1].get();
}

}  // namespace

Complex complex_dot(const Op& op, const Complex& a, const Complex& b, Rewriter& rw) {
  return contraction(op, a, b, rw);
}

Complex complex_convolution(const Op& op, const Complex& a, const Complex& b, Rewriter& rw) {
  return contraction(op, a, b, rw);
}

Complex complex_constant(const Dense& value, Rewriter& rw) {
  const Type type = part_type(value.type);
  const int64_t count = value.splat ? 1 : value.type.count();
  std::array<std::vector<std::byte>, 2> bytes;
  for (int64_t i = 0; i < count; ++i) {
    const std::byte* p = value.element(i);
    bytes[0].insert(bytes[0].end(), p, p + 4);
    bytes[1].insert(bytes[1].end(), p + 4, p + 8);
  }
  const auto make = [&](std::vector<std::byte>& part) {
    return rw.constant(
        {type, value.splat, std::make_shared<const std::vector<std::byte>>(std::move(part))});
  };
  Value* re = make(bytes[0]);
  return {re, make(bytes[1])};
}

Complex unpack_complex(Value* words, Rewriter& rw) {
  Builder b(rw);
  const int64_t last = words->type.rank() - 1;
  Dims dims = words->type.dims;
  dims.pop_back();
  const auto part = [&](int64_t i) { return b.reshape(b.slice_dim(words, last, i, i + 1), dims); };
  Value* re = part(0);
  return {re, part(1)};
}

// By a choice in each place: stores of every other number would cost a granule of HBM each.
Value* pack_complex(const Complex& x, Rewriter& rw) {
  Builder b(rw);
  Dims dims = x.re->type.dims;
  Dims where(dims.size());
  std::iota(where.begin(), where.end(), 0);
  dims.push_back(2);
  const Type pair{Elem::kI1, {2}};
  Value* first = rw.constant(make_dense(pair, {std::byte{1}, std::byte{0}}));
  Value *im = b.broadcast(x.im, dims, where), *re = b.broadcast(x.re, dims, where);
  Value* is_re = b.broadcast(first, dims, {static_cast<int64_t>(where.size())});
  return b.select(is_re, re, im);
}

bool has_bodies_of_parts(const Op& op) {
  const Region& body = *op.regions.at(0);
  switch (op.kind) {
    case Kind::kReduce:
    case Kind::kReduceWindow:
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
      return simple_reducer(body) == Kind::kAdd;
    case Kind::kScatter:
      return simple_reducer(body) == Kind::kAdd || takes_update(body);
      TPU_CASES(SOURCE, ELEMENTWISE, SHAPE, CONTRACTION, CONTROL, HOST, WHOLE, MATRIX, CALL, SIZED,
                GLOBAL, END)
    case Kind::kSelectAndScatter:
    case Kind::kIndexedRead:
    case Kind::kIndexedWrite:
    case Kind::kIndexedCombine:
    case Kind::kSort:
    case Kind::kMap:
    case Kind::kAllGather:
    case Kind::kAllToAll:
    case Kind::kCollectiveBroadcast:
    case Kind::kCollectivePermute:
      return false;
  }
  return false;
}

void part_body(const Op& op, Op& made) {
  const bool adds = simple_reducer(*op.regions[0]) == Kind::kAdd;
  Region* region = made.add_region();
  const Type scalar{Elem::kF32, {}};
  Value* a = region->add_arg(scalar);
  Value* b = region->add_arg(scalar);
  Value* out = adds ? region->append(Kind::kAdd, {a, b}, {scalar}, NoAttrs{}, op.loc)->result() : b;
  region->append(Kind::kReturn, {out}, {}, NoAttrs{}, op.loc);
}

}  // namespace tpu::compiler
