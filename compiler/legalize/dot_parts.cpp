#include "legalize/dot_parts.hpp"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "legalize/linalg/matrices.hpp"

namespace tpu::compiler {

namespace {

// A dimension of the result, and the dimensions of the operands that it comes from.
struct CutDim {
  size_t result = 0;
  std::optional<int64_t> lhs, rhs;
};

std::vector<int64_t> free_dims(const Type& type, const Dims& batch, const Dims& contract) {
  std::vector<int64_t> free;
  for (int64_t d = 0; d < type.rank(); ++d) {
    if (std::ranges::find(batch, d) == batch.end() &&
        std::ranges::find(contract, d) == contract.end()) {
      free.push_back(d);
    }
  }
  return free;
}

// The longest dimension of the result, the first of equal ones.
CutDim longest(const Op& dot) {
  const auto& a = dot.as<DotAttrs>();
  std::vector<CutDim> dims;
  for (size_t i = 0; i < a.lhs_batch.size(); ++i) {
    dims.push_back({dims.size(), a.lhs_batch[i], a.rhs_batch[i]});
  }
  for (const int64_t d : free_dims(dot.operand_type(0), a.lhs_batch, a.lhs_contract)) {
    dims.push_back({dims.size(), d, std::nullopt});
  }
  for (const int64_t d : free_dims(dot.operand_type(1), a.rhs_batch, a.rhs_contract)) {
    dims.push_back({dims.size(), std::nullopt, d});
  }
  return *std::ranges::max_element(dims, {},
                                   [&](const CutDim& dim) { return dot.type().dims[dim.result]; });
}

// Elements of a part: all parts of one size, if there is such a number of not many more.
int64_t part_size(int64_t elements, int64_t parts) {
  for (int64_t n = parts; n <= 2 * parts && n <= elements; ++n) {
    if (elements % n == 0) {
      return elements / n;
    }
  }
  return (elements + parts - 1) / parts;
}

class DotLoop {
 public:
  DotLoop(const Op& dot, Rewriter& rw, int64_t parts)
      : dot_(dot), rw_(rw), m_(rw), cut_(longest(dot)) {
    const int64_t elements = dot.type().dims[cut_.result];
    size_ = part_size(elements, std::min(parts, elements));
    trips_ = (elements + size_ - 1) / size_;
  }

  Value* make() {
    Builder& b = m_.builder();
    const auto step = [&](Value* i, const legalization::Values& carried) {
      // Starts behind the last possible one are moved there, by both ops in the same way.
      Value* start = b.mul(i, b.splat_int(i->type, size_));
      Value* lhs = part(dot_.operands[0], cut_.lhs, start);
      Value* rhs = part(dot_.operands[1], cut_.rhs, start);
      Type type = dot_.type();
      type.dims[cut_.result] = size_;
      Value* made = rw_.make(Kind::kDotGeneral, {lhs, rhs}, type, dot_.attrs);
      legalization::Values operands = {carried[0], made};
      append_starts(operands, type.rank(), static_cast<int64_t>(cut_.result), start);
      return legalization::Values{
          rw_.make(Kind::kDynamicUpdateSlice, operands, carried[0]->type, NoAttrs{})};
    };
    return m_.repeat(trips_, {b.splat_int(dot_.type(), 0)}, step)[0];
  }

 private:
  void append_starts(legalization::Values& operands, int64_t rank, int64_t dim, Value* start) {
    Value* zero = m_.builder().splat_int(start->type, 0);
    for (int64_t d = 0; d < rank; ++d) {
      operands.push_back(d == dim ? start : zero);
    }
  }

  Value* part(Value* x, std::optional<int64_t> dim, Value* start) {
    if (!dim) {
      return x;
    }
    const Dims sizes = with_dim(x->type.dims, *dim, size_);
    legalization::Values operands = {x};
    append_starts(operands, x->type.rank(), *dim, start);
    return rw_.make(Kind::kDynamicSlice, operands, {x->type.elem, sizes}, DimsAttrs{sizes});
  }

  const Op& dot_;
  Rewriter& rw_;
  legalization::Matrices m_;
  const CutDim cut_;
  int64_t size_ = 1, trips_ = 1;
};

}  // namespace

std::vector<const Op*> equal_dots(const Module& module, const Op* dot) {
  std::vector<const Op*> equal;
  if (dot == nullptr || dot->kind != Kind::kDotGeneral) {
    return equal;
  }
  walk(module.main->body, [&](const Op& op) {
    if (op.kind == Kind::kDotGeneral && op.type() == dot->type() &&
        op.operand_type(0) == dot->operand_type(0) && op.operand_type(1) == dot->operand_type(1) &&
        attrs_equal(op.attrs, dot->attrs)) {
      equal.push_back(&op);
    }
  });
  return equal;
}

bool loop_over_dot_parts(Module& module, const std::vector<const Op*>& dots, int64_t parts) {
  const auto cannot_be_cut = [](const Op* dot) {
    return dot == nullptr || dot->kind != Kind::kDotGeneral || dot->type().rank() == 0 ||
           std::ranges::max(dot->type().dims) < 2;
  };
  if (dots.empty() || std::ranges::any_of(dots, cannot_be_cut)) {
    return false;
  }
  const std::unordered_set<const Op*> wanted(dots.begin(), dots.end());
  const bool found = Rewriter().run(module.main->body, [&](Op& op, Rewriter& rw) {
    return wanted.contains(&op)
               ? std::vector<Value*>{DotLoop(op, rw, std::max<int64_t>(parts, 2)).make()}
               : std::vector<Value*>{};
  });
  module.number_ops();
  return found;
}

}  // namespace tpu::compiler
