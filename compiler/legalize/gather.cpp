// gather: small tables by comparing with every place, others by a list of element offsets.
//   before   y = gather(table f32[8192,512], i i32[25,1]) {slices 1 x 512}
//   after    list = clamp(i, 0, 8191) * 512; y = indexed_read(table, list) {window 1 x 512}
//   before   y = gather(x f32[1000,1000], i i32[3000,1]) {offset 0, slices 1000 x 1}
//   after    y = transpose(indexed_read(transpose(x), clamp(i, 0, 999) * 1000) {window 1 x 1000})
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
    const Dims order = given_order(operand_->type.dims.size());
    IndexSpace space = space_of(order);
    if (is_small(space)) {
      return arrange(space, by_comparison(space), order);
    }
    const Dims better = order_for_runs(operand_->type, a_.slice_sizes, space.count(), 1);
    if (better.empty()) {
      return arrange(space, by_list(space), order);
    }
    operand_ = b_.transpose(operand_, better);
    IndexSpace moved = space_of(better);
    return arrange(moved, by_list(moved), better);
  }

 private:
  bool is_batching(int64_t d) const { return contains(a_.operand_batching_dims, d); }

  // `order`: of the dims of the gather's operand in operand_.
  IndexSpace space_of(const Dims& order) {
    return {b_,
            op_.operands[1],
            a_.index_vector_dim,
            places_in(order, a_.start_index_map),
            places_in(order, a_.operand_batching_dims),
            a_.start_indices_batching_dims,
            operand_->type.dims,
            in_order(a_.slice_sizes, order)};
  }

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
    type.dims.insert(type.dims.end(), space.window().begin(), space.window().end());
    return rw_.make(Kind::kIndexedRead, {operand_, space.places(true, 1)}, type,
                    IndexedAttrs{space.window()});
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

  // From records and window (in `order`) to the result: collapsed dims go, offset dims to their
  // places.
  Value* arrange(const IndexSpace& space, Value* x, const Dims& order) {
    Dims dims = space.records(), offsets;
    const auto n = static_cast<int64_t>(dims.size());
    for (const int64_t d : order) {
      if (!is_batching(d) && !contains(a_.collapsed_slice_dims, d)) {
        dims.push_back(a_.slice_sizes[static_cast<size_t>(d)]);
        offsets.push_back(d);
      }
    }
    x = b_.reshape(x, dims);
    Dims ascending = offsets, perm;
    std::sort(ascending.begin(), ascending.end());
    const Dims at = places_in(offsets, ascending);
    int64_t record = 0;
    size_t offset = 0;
    for (int64_t d = 0; d < op_.type().rank(); ++d) {
      perm.push_back(contains(a_.offset_dims, d) ? n + at[offset++] : record++);
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
