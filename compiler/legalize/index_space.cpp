// Index vectors of any integer type to 32-bit places.
#include "legalize/index_space.hpp"

#include <algorithm>
#include <numeric>

namespace tpu::compiler {

IndexSpace::IndexSpace(Builder& b, Value* indices, int64_t vector_dim, const Dims& map,
                       const Dims& operand_batching, const Dims& indices_batching,
                       const Dims& operand, Dims window)
    : b_(b),
      records_(indices->type.dims),
      window_(std::move(window)),
      operand_(operand),
      strides_(row_major_strides(operand)) {
  if (vector_dim < indices->type.rank()) {
    records_.erase(records_.begin() + vector_dim);
  }
  for (size_t i = 0; i < operand_batching.size(); ++i) {
    const int64_t d = operand_batching[i], s = indices_batching[i];
    axes_.push_back(
        {d, operand[static_cast<size_t>(d)] - 1, nullptr, nullptr, s > vector_dim ? s - 1 : s});
  }
  const Type i32{Elem::kI32, records_};
  for (size_t k = 0; k < map.size(); ++k) {
    const auto d = static_cast<size_t>(map[k]);
    const int64_t limit = operand[d] - window_[d];
    Value* x = component(indices, vector_dim, static_cast<int64_t>(k));
    if (elem_bytes(x->type.elem) < 4) {  // a dim's size may not fit into the type
      x = b_.convert(x, Elem::kI32);
    }
    Value* last = b_.splat_int(x->type, limit);
    Value* inside = b_.compare(CompareDirection::kLe, x, last);
    if (is_signed(x->type.elem)) {
      Value* zero = b_.splat_int(x->type, 0);
      inside = b_.logical_and(inside, b_.compare(CompareDirection::kGe, x, zero));
      x = b_.max(x, zero);
    }
    // Clamped in its own type, so that the conversion is exact.
    axes_.push_back({map[k], limit, b_.convert(b_.min(x, last), Elem::kI32), inside, -1});
  }
}

Value* IndexSpace::component(Value* indices, int64_t vector_dim, int64_t k) {
  if (vector_dim == indices->type.rank()) {
    return indices;
  }
  return b_.reshape(b_.slice_dim(indices, vector_dim, k, k + 1), records_);
}

int64_t IndexSpace::count() const { return Type{Elem::kI32, records_}.count(); }
int64_t IndexSpace::window_elements() const { return Type{Elem::kI32, window_}.count(); }

Value* IndexSpace::clamped(const Axis& axis) {
  return axis.record < 0 ? axis.start : b_.iota({Elem::kI32, records_}, axis.record);
}

int64_t IndexSpace::unit() const {
  int64_t g = 0;
  for (const Axis& axis : axes_) {
    g = std::gcd(g, axis.limit > 0 ? strides_[static_cast<size_t>(axis.dim)] : 0);
  }
  return std::max<int64_t>(g, 1);
}

Value* IndexSpace::places(bool clamp, int64_t unit) {
  const Type i32{Elem::kI32, records_};
  Value* sum = nullptr;
  Value* inside = nullptr;
  for (const Axis& axis : axes_) {
    if (axis.inside != nullptr && !clamp) {
      inside = inside == nullptr ? axis.inside : b_.logical_and(inside, axis.inside);
    }
    const int64_t stride = strides_[static_cast<size_t>(axis.dim)] / unit;
    if (axis.limit <= 0) {
      continue;
    }
    Value* x = clamped(axis);
    x = stride == 1 ? x : b_.mul(x, b_.splat_int(i32, stride));
    sum = sum == nullptr ? x : b_.add(sum, x);
  }
  sum = sum == nullptr ? b_.splat_int(i32, 0) : sum;
  return inside == nullptr ? sum : b_.select(inside, sum, b_.splat_int(i32, -1));
}

namespace {

// Measured with f32 tables of up to 2^21 elements in HBM and VMEM: a window takes a cycle for each
// run, however short, and for each 416 bytes.
constexpr int64_t kWindowBytesACycle = 416, kTransposedBytesACycle = 100, kTransposeCycles = 2000;
constexpr int64_t kLeastGain = 2;
constexpr int64_t kMostMoved = int64_t{1} << 30;  // bytes, since a copy takes memory too

int64_t window_cycles(const Type& operand, const Dims& window, int64_t records) {
  int64_t run = 1;
  for (size_t d = window.size(); d-- > 0;) {
    run *= window[d];
    if (window[d] != operand.dims[d]) {
      break;
    }
  }
  const int64_t bytes = run * elem_bytes(operand.elem);
  const int64_t runs = records * (Type{Elem::kI8, window}.count() / run);
  return runs + runs * bytes / kWindowBytesACycle;
}

}  // namespace

Dims order_for_runs(const Type& operand, const Dims& window, int64_t records, int64_t moves) {
  Dims order;
  const auto add = [&](auto&& belongs) {
    for (size_t d = 0; d < window.size(); ++d) {
      if (belongs(window[d], operand.dims[d])) {
        order.push_back(static_cast<int64_t>(d));
      }
    }
  };
  add([](int64_t w, int64_t n) { return w == 1 && n > 1; });
  add([](int64_t w, int64_t n) { return w > 1 && w < n; });
  add([](int64_t w, int64_t n) { return w == n; });
  const int64_t bytes = operand.count() * elem_bytes(operand.elem);
  const int64_t moved = moves * (bytes / kTransposedBytesACycle + kTransposeCycles);
  const int64_t after = window_cycles({operand.elem, in_order(operand.dims, order)},
                                      in_order(window, order), records);
  const bool pays = bytes <= kMostMoved &&
                    kLeastGain * (moved + after) <= window_cycles(operand, window, records);
  return pays ? order : Dims{};
}

Dims given_order(size_t rank) {
  Dims order(rank);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Dims in_order(const Dims& of_dims, const Dims& order) {
  Dims out;
  for (const int64_t d : order) {
    out.push_back(of_dims[static_cast<size_t>(d)]);
  }
  return out;
}

Dims places_in(const Dims& order, const Dims& some_dims) {
  Dims out;
  for (const int64_t d : some_dims) {
    out.push_back(std::find(order.begin(), order.end(), d) - order.begin());
  }
  return out;
}

}  // namespace tpu::compiler
