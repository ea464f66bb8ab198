// Trees of bodies over slices: see reduce_tree.hpp.
#include "legalize/reduce_tree.hpp"

#include <algorithm>
#include <limits>

namespace tpu::compiler::legalization {
namespace {

constexpr int64_t kKernelOps = 40, kKernelOperands = 12;  // of one fused kernel, with some room
constexpr int64_t kMaxRadix = 8;

int64_t lowest_int(Elem e) {
  return is_signed(e) ? std::numeric_limits<int64_t>::min() >> (64 - 8 * elem_bytes(e)) : 0;
}

// All bits of the type set below the sign; ui64 wraps to -1.
int64_t highest_int(Elem e) {
  if (e == Elem::kI1) {
    return 1;
  }
  return is_signed(e) ? ~lowest_int(e)
                      : static_cast<int64_t>(~uint64_t{0} >> (64 - 8 * elem_bytes(e)));
}

}  // namespace

Dims without_dim(Dims dims, int64_t dim) {
  dims.erase(dims.begin() + dim);
  return dims;
}

Dense identity_of(Kind reducer, const Type& type) {
  const bool real = is_float(type.elem);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  switch (reducer) {
    case Kind::kMultiply:
      return real ? make_splat(type, 1) : make_splat_int(type, 1);
    case Kind::kMaximum:
      return real ? make_splat(type, -kInf) : make_splat_int(type, lowest_int(type.elem));
    case Kind::kMinimum:
      return real ? make_splat(type, kInf) : make_splat_int(type, highest_int(type.elem));
    case Kind::kAnd:
      return make_splat_int(type, type.elem == Elem::kI1 ? 1 : -1);
    case Kind::kAdd:
    case Kind::kOr:
    case Kind::kXor:
      return real ? make_splat(type, 0) : make_splat_int(type, 0);
    default:
      throw Error("internal: the identity of this reducer is not known", source_name(reducer));
  }
}

ReduceTree::ReduceTree(Rewriter& rw, const Region& body) : b_(rw), body_(body) {
  simple_ = simple_reducer(body);
  const auto operands = static_cast<int64_t>(body.args.size() / 2);
  const auto ops = std::max<int64_t>(static_cast<int64_t>(body.ops.size()) - 1, 1);
  radix_ =
      std::clamp<int64_t>(std::min(kKernelOps / ops + 1, kKernelOperands / operands), 2, kMaxRadix);
}

Arrays ReduceTree::combine(const Arrays& a, const Arrays& b) {
  if (simple_) {  // also on elements that were widened
    return {b_.binary(*simple_, a[0], b[0])};
  }
  Arrays args = a;
  args.insert(args.end(), b.begin(), b.end());
  return b_.apply(body_, args, a[0]->type.dims);
}

Arrays ReduceTree::with_initial(const Arrays& init, const Arrays& x) {
  Arrays wide;
  for (Value* v : init) {
    wide.push_back(b_.broadcast_scalar(v, x[0]->type.dims));
  }
  return combine(wide, x);
}

Arrays ReduceTree::reduce(Arrays x, int64_t dim) {
  const auto d = static_cast<size_t>(dim);
  const auto cut = [&](int64_t start, int64_t limit, int64_t stride) {
    Arrays out;
    for (Value* v : x) {
      out.push_back(b_.slice_dim(v, dim, start, limit, stride));
    }
    return out;
  };
  std::vector<Arrays> tail;  // single elements behind what the tree covers, last ones first
  for (int64_t n = x[0]->type.dims[d]; n > 1; n = x[0]->type.dims[d]) {
    int64_t group = std::min(radix_, n);
    for (int64_t g = group; g >= std::max<int64_t>(radix_ / 2, 2); --g) {
      if (n % g == 0) {
        group = g;
        break;
      }
    }
    const int64_t covered = n / group * group;
    for (int64_t i = n; i-- > covered;) {
      tail.push_back(cut(i, i + 1, 1));
    }
    Arrays acc = cut(0, covered, group);
    for (int64_t j = 1; j < group; ++j) {
      acc = combine(acc, cut(j, covered, group));
    }
    x = acc;
  }
  while (!tail.empty()) {
    x = combine(x, tail.back());
    tail.pop_back();
  }
  for (Value*& v : x) {
    v = b_.reshape(v, without_dim(v->type.dims, dim));
  }
  return x;
}

}  // namespace tpu::compiler::legalization
