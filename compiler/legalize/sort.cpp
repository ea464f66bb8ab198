// sort: a bitonic network in which every exchange puts the smaller element first, so that positions
// behind the data (up to a power of two) never move. Each step is one fused kernel: the partner of
// a position is a reversed view, and the comparator runs on whole arrays. The place where an
// element started is the last key: the order is total, hence stable.
// Where only the first elements are read, blocks of that many are sorted, and then the smaller half
// of two blocks is kept until there is one.
//   step with blocks of 8:   [0 1 2 3 | 4 5 6 7] meets [7 6 5 4 | 3 2 1 0], then distances 2 and 1
#include <algorithm>

#include "legalize/legalize.hpp"
#include "legalize/reduce_tree.hpp"

namespace tpu::compiler::legalization {
namespace {

class SortLowering {
 public:
  SortLowering(Op& op, Rewriter& rw, int64_t wanted)
      : op_(op), b_(rw), dim_(op.as<SortAttrs>().dim), dims_(op.type().dims) {
    n_ = dims_[static_cast<size_t>(dim_)];
    while (size_ < n_) {
      size_ *= 2;
    }
    for (int64_t d = 0; d < static_cast<int64_t>(dims_.size()); ++d) {
      (d < dim_ ? outer_ : inner_) *= d == dim_ ? 1 : dims_[static_cast<size_t>(d)];
    }
    while (kept_ < wanted) {
      kept_ *= 2;
    }
    if (2 * kept_ <= size_) {
      dims_[static_cast<size_t>(dim_)] = kept_;
    } else {
      kept_ = size_;
    }
  }

  std::vector<Value*> run() {
    for (Value* v : op_.operands) {
      Value* flat = b_.reshape(v, {outer_, n_, inner_});
      x_.push_back(
          b_.pad(flat, b_.splat_int({v->type.elem, {}}, 0), {0, 0, 0}, {0, size_ - n_, 0}));
    }
    if (!ties_are_equal(op_)) {
      x_.push_back(b_.iota({Elem::kI32, {outer_, size_, inner_}}, 1));
    }
    for (int64_t block = 2; block <= kept_; block *= 2) {
      step({outer_, size_ / block, block, inner_}, block - 1, block / 2);
      merge(block / 4);
    }
    while (size_ > kept_) {
      halve();
      merge(kept_ / 2);
    }
    std::vector<Value*> out;
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      Value* flat = b_.reshape(x_[i], {outer_, size_, inner_});
      out.push_back(b_.reshape(b_.slice_dim(flat, 1, 0, n_), dims_));
    }
    return out;
  }

 private:
  void merge(int64_t distance) {
    for (; distance >= 1; distance /= 2) {
      step({outer_, size_ / (2 * distance), 2, distance, inner_}, distance, distance);
    }
  }

  // Blocks of the second half meet those of the first, which keep the smaller elements. The first
  // half is full of data.
  void halve() {
    const int64_t half = size_ / 2;
    const Dims shape{outer_, half / kept_, kept_, inner_};
    Arrays mine, other;
    for (Value* v : x_) {
      Value* flat = b_.reshape(v, {outer_, size_, inner_});
      mine.push_back(b_.reshape(b_.slice_dim(flat, 1, 0, half), shape));
      other.push_back(b_.reverse(b_.reshape(b_.slice_dim(flat, 1, half, size_), shape), {2}));
    }
    Value* takes = before(other, mine, shape);
    if (size_ != n_) {
      const Type positions{Elem::kI32, shape};
      Value* at = b_.reshape(b_.iota({Elem::kI32, {outer_, half, inner_}}, 1), shape);
      Value* partner = b_.binary(Kind::kXor, at, b_.splat_int(positions, kept_ - 1));
      Value* end = b_.splat_int(positions, n_ - half);
      takes = b_.logical_and(takes, b_.compare(CompareDirection::kLt, partner, end));
    }
    for (size_t i = 0; i < x_.size(); ++i) {
      x_[i] = b_.select(takes, other[i], mine[i]);
    }
    size_ = n_ = half;
  }

  // Position p meets p xor `flip`: dimension 2 of `shape` reversed. The one with `bit` set keeps
  // the larger element.
  void step(const Dims& shape, int64_t flip, int64_t bit) {
    Arrays mine, other;
    for (Value* v : x_) {
      mine.push_back(b_.reshape(v, shape));
      other.push_back(b_.reverse(mine.back(), {2}));
    }
    const Type positions{Elem::kI32, shape};
    Value* at = b_.reshape(b_.iota({Elem::kI32, {outer_, size_, inner_}}, 1), shape);
    Value* none = b_.splat_int(positions, 0);
    Value* upper =
        b_.compare(CompareDirection::kNe, b_.logical_and(at, b_.splat_int(positions, bit)), none);
    Value* takes = b_.binary(Kind::kXor, before(other, mine, shape), upper);
    if (size_ != n_) {
      Value* partner = b_.binary(Kind::kXor, at, b_.splat_int(positions, flip));
      Value* end = b_.splat_int(positions, n_);
      takes = b_.logical_and(takes, b_.compare(CompareDirection::kLt, b_.max(at, partner), end));
    }
    for (size_t i = 0; i < x_.size(); ++i) {
      x_[i] = b_.select(takes, other[i], mine[i]);
    }
  }

  Value* before(const Arrays& a, const Arrays& b, const Dims& shape) {
    Value* first = compared(a, b, shape);
    if (x_.size() == op_.operands.size()) {
      return first;
    }
    Value* tied_or_first = b_.logical_not(compared(b, a, shape));
    Value* older = b_.compare(CompareDirection::kLt, a.back(), b.back());
    return b_.logical_or(first, b_.logical_and(tied_or_first, older));
  }

  Value* compared(const Arrays& a, const Arrays& b, const Dims& shape) {
    Arrays args;
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      args.push_back(a[i]);
      args.push_back(b[i]);
    }
    return b_.apply(*op_.regions[0], args, shape)[0];
  }

  Op& op_;
  Builder b_;
  const int64_t dim_;
  Dims dims_;  // of the results
  int64_t n_ = 0, size_ = 1, outer_ = 1, inner_ = 1;
  int64_t kept_ = 1;  // elements of the sorted dim, a power of two
  Arrays x_;          // operands, then the place where each element started
};

}  // namespace

bool ties_are_equal(const Op& sort) {
  const Region& body = *sort.regions[0];
  return sort.as<SortAttrs>().equal_ties ||
         (sort.operands.size() == 1 && !is_float(sort.type().elem) && body.ops.size() == 2 &&
          body.ops[0]->kind == Kind::kCompare);
}

SortHeads sort_heads(const Region& region) {
  SortHeads heads;
  bool any = false;
  walk(region, [&](const Op& op) { any = any || op.kind == Kind::kSort; });
  if (!any) {
    return heads;
  }
  const Uses uses = compute_uses(region);
  walk(region, [&](const Op& op) {
    if (op.kind != Kind::kSort) {
      return;
    }
    const auto dim = static_cast<size_t>(op.as<SortAttrs>().dim);
    int64_t wanted = 1;
    for (const auto& result : op.results) {
      const auto users = uses.find(result.get());
      if (users == uses.end()) {
        continue;
      }
      for (const Op* user : users->second) {
        wanted = std::max(wanted, user->kind == Kind::kSlice ? user->as<SliceAttrs>().limit[dim]
                                                             : op.type().dims[dim]);
      }
    }
    heads[&op] = wanted;
  });
  return heads;
}

std::vector<Value*> sort(Op& op, Rewriter& rw, const SortHeads& heads) {
  const int64_t n = op.type().dims[static_cast<size_t>(op.as<SortAttrs>().dim)];
  if (n <= 1 || op.type().count() == 0) {
    return op.operands;
  }
  const auto head = heads.find(&op);
  return SortLowering(op, rw, head == heads.end() ? n : head->second).run();
}

// Floats in total order (-NaN < -inf < .. < -0 < +0 < .. < NaN) are ordered like the integers that
// result if the bits below the sign are flipped in negative ones.
std::vector<Value*> compare_total_order(Op& op, Rewriter& rw) {
  if (op.as<CompareAttrs>().type != CompareType::kTotalOrder ||
      !is_float(op.operand_type(0).elem)) {
    return {};
  }
  Builder b(rw);
  const Type bits{Elem::kI32, op.type().dims};
  const auto key = [&](Value* v) {
    Value* x = rw.make(Kind::kBitcastConvert, {b.convert(v, Elem::kF32)}, bits);
    Value* sign = b.binary(Kind::kShiftRightArith, x, b.splat_int(bits, 31));
    return b.binary(Kind::kXor, x, b.logical_and(sign, b.splat_int(bits, 0x7fffffff)));
  };
  Value *right = key(op.operands[1]), *left = key(op.operands[0]);
  return {b.compare(op.as<CompareAttrs>().direction, left, right)};
}

}  // namespace tpu::compiler::legalization
