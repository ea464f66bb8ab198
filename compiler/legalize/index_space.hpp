// What gather and scatter have in common: an array of index vectors seen as a list of records, each
// with the element of the operand where its window begins.
#pragma once

#include <algorithm>
#include <vector>

#include "legalize/builder.hpp"

namespace tpu::compiler {

inline bool contains(const Dims& list, int64_t d) {
  return std::find(list.begin(), list.end(), d) != list.end();
}

class IndexSpace {
 public:
  // `map`: operand dimension of each entry of an index vector; `window`: sizes per operand dim.
  IndexSpace(Builder& b, Value* indices, int64_t vector_dim, const Dims& map,
             const Dims& operand_batching, const Dims& indices_batching, const Dims& operand,
             Dims window);

  struct Axis {      // an operand dim whose position differs between records
    int64_t dim;     // of the operand
    int64_t limit;   // last position of a window, may be 0
    Value* start;    // i32 over the records, from the index vectors; null for a batching dim
    Value* inside;   // i1 over the records: the window lies inside here; null for a batching dim
    int64_t record;  // batching: dim of the records that it equals, else -1
  };

  const Dims& records() const { return records_; }
  int64_t count() const;  // records
  const Dims& window() const { return window_; }
  int64_t window_elements() const;
  const std::vector<Axis>& axes() const { return axes_; }

  // i32 over the records: start clamped into [0, limit].
  Value* clamped(const Axis& axis);
  // i32 over the records: sum of position * stride / unit, positions clamped (`clamp`) or taken as
  // they are and -1 for records whose window is partly outside.
  Value* places(bool clamp, int64_t unit);
  // Greatest number that divides all places.
  int64_t unit() const;

 private:
  Value* component(Value* indices, int64_t vector_dim, int64_t k);

  Builder& b_;
  Dims records_, window_, operand_, strides_;
  std::vector<Axis> axes_;
};

// The order of the operand's dims in which windows have the longest runs of neighbors: dims of
// which they have one place come first, those that they cover whole last. Empty where the operand
// should stay as it is: runs do not get longer, or `moves` transposes of it take more than they
// save.
Dims order_for_runs(const Type& operand, const Dims& window, int64_t records, int64_t moves);

Dims given_order(size_t rank);                          // 0, 1, ..
Dims in_order(const Dims& of_dims, const Dims& order);  // out[i] = of_dims[order[i]]
// Where each of the dims lies in `order`.
Dims places_in(const Dims& order, const Dims& some_dims);

}  // namespace tpu::compiler
