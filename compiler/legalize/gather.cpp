// gather: small tables by comparing with every place, others by a list of element offsets.
//   before   y = gather(table f32[8192,512], i i32[25,1]) {slices 1 x 512}
//   after    list = clamp(i, 0, 8191) * 512; y = indexed_read(table, list) {window 1 x 512}
//   before   y = gather(x f32[25,10], label i32[25,1]) {operand_batching 0, slices 1 x 1}
//   after    y = reduce or over v of select(iota == clamp(label), bits of x, 0)
#include <algorithm>

#include "legalize/index_space.hpp"
#include "legalize/legalize.hpp"

namespace tpu::compiler::legalization {

namespace {

constexpr int64_t kSmallTable = 256;     // places times window elements: cheaper than a granule
constexpr int64_t kSmallWork = 1 << 14;  // compared elements in all: cheaper than a list in VMEM

class Gather {
 public:
  Gather(Op& op, Rewriter& rw)
      : op_(op), a_(op.as<GatherAttrs>()), b_(rw), rw_(rw), operand_(op.operands[0]) {}

  Value* run() {
    if (op_.type().count() == 0) {
      return b_.splat_int(op_.type(), 0);
    }
    cut_fixed_dims();
    if (operand_->type.count() > INT32_MAX) {
      throw Error("a table of more than 2^31 - 1 elements cannot be indexed; cut it into parts",
                  "stablehlo.gather", op_.loc);
    }
    IndexSpace space(b_, op_.operands[1], a_.index_vector_dim, a_.start_index_map,
                     a_.operand_batching_dims, a_.start_indices_batching_dims, operand_->type.dims,
                     a_.slice_sizes);
    return arrange(space, is_small(space) ? by_comparison(space) : by_list(space));
  }

 private:
  bool is_batching(int64_t d) const { return contains(a_.operand_batching_dims, d); }

  // Slices of dims without an index begin at 0.
  void cut_fixed_dims() {
    for (int64_t d = 0; d < operand_->type.rank(); ++d) {
      const int64_t size = a_.slice_sizes[static_cast<size_t>(d)];
      if (!is_batching(d) && !contains(a_.start_index_map, d) &&
          size < operand_->type.dims[static_cast<size_t>(d)]) {
        operand_ = b_.slice_dim(operand_, d, 0, size);
      }
    }
  }

  static bool is_small(const IndexSpace& space) {
    int64_t places = space.window_elements();
    for (const IndexSpace::Axis& axis : space.axes()) {
      if (axis.record < 0 && axis.limit > 0) {
        if (space.window()[static_cast<size_t>(axis.dim)] != 1) {
          return false;
        }
        places *= axis.limit + 1;
      }
    }
    return places <= kSmallTable || places * space.count() <= kSmallWork;
  }

  // Records, then the window in dims of the operand.
  Value* by_list(IndexSpace& space) {
    Type type{operand_->type.elem, space.records()};
    type.dims.insert(type.dims.end(), a_.slice_sizes.begin(), a_.slice_sizes.end());
    return rw_.make(Kind::kIndexedRead, {operand_, space.places(true, 1)}, type,
                    IndexedAttrs{a_.slice_sizes});
  }

  // Domain: records, then the operand's dims; batching dims are of size 1 there. Floats are looked
  // up by their bits, which no arithmetic changes then.
  Value* by_comparison(IndexSpace& space) {
    const auto n = static_cast<int64_t>(space.records().size());
    Dims domain = space.records(), where, searched;
    for (int64_t d = 0; d < operand_->type.rank(); ++d) {
      domain.push_back(is_batching(d) ? 1 : operand_->type.dims[static_cast<size_t>(d)]);
      where.push_back(n + d);
    }
    Dims of_records;
    for (int64_t d = 0; d < n; ++d) {
      of_records.push_back(d);
    }
    Value* found = nullptr;
    for (const IndexSpace::Axis& axis : space.axes()) {
      if (axis.record >= 0) {
        where[static_cast<size_t>(axis.dim)] = axis.record;
      } else if (axis.limit > 0) {
        Value* wanted = b_.broadcast(space.clamped(axis), domain, of_records);
        Value* at = b_.iota({Elem::kI32, domain}, n + axis.dim);
        Value* here = b_.compare(CompareDirection::kEq, at, wanted);
        found = found == nullptr ? here : b_.logical_and(found, here);
        searched.push_back(n + axis.dim);
      }
    }
    Value* x = b_.broadcast(operand_, domain, where);
    if (found == nullptr) {
      return x;
    }
    const Elem e = x->type.elem;
    if (is_float(e)) {
      x = b_.bitcast(b_.convert(x, Elem::kF32), {Elem::kU32, x->type.dims});
    }
    Value* picked = b_.select(found, x, b_.splat_int(x->type, 0));
    Value* y = b_.reduce(Kind::kOr, picked, b_.splat_int({x->type.elem, {}}, 0), searched);
    return is_float(e) ? from_bits(y, e) : y;
  }

  // Of a float in f32, which holds a bf16 in its upper half.
  Value* from_bits(Value* word, Elem e) {
    if (e == Elem::kBf16) {
      word = b_.binary(Kind::kShiftRightLogical, word, b_.splat_int(word->type, 16));
      word = b_.convert(word, Elem::kU16);
    }
    return b_.bitcast(word, {e, word->type.dims});
  }

  // From records and window to the result: collapsed dims go, offset dims to their places.
  Value* arrange(const IndexSpace& space, Value* x) {
    Dims dims = space.records();
    const auto n = static_cast<int64_t>(dims.size());
    for (int64_t d = 0; d < operand_->type.rank(); ++d) {
      if (!is_batching(d) && !contains(a_.collapsed_slice_dims, d)) {
        dims.push_back(a_.slice_sizes[static_cast<size_t>(d)]);
      }
    }
    x = b_.reshape(x, dims);
    Dims perm;
    int64_t record = 0, offset = n;
    for (int64_t d = 0; d < op_.type().rank(); ++d) {
      perm.push_back(contains(a_.offset_dims, d) ? offset++ : record++);
    }
    return std::is_sorted(perm.begin(), perm.end()) ? x : b_.transpose(x, perm);
  }

  Op& op_;
  const GatherAttrs& a_;
  Builder b_;
  Rewriter& rw_;
  Value* operand_;
};

}  // namespace

std::vector<Value*> gather(Op& op, Rewriter& rw) { return {Gather(op, rw).run()}; }

}  // namespace tpu::compiler::legalization
