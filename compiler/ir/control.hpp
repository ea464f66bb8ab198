// Facts about ops with regions that run: while, if, case.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "ir/graph.hpp"

namespace tpu::compiler {

// Values that the op's regions use and that are made outside of the op, in order of first use.
std::vector<Value*> free_values(const Op& op);

// Operands and free values: what must be known before the op.
std::vector<Value*> dependencies(const Op& op);

// True if an op of the region acts on the outside, as calls of the host do.
bool has_effects(const Region& region);

// True for an argument of the body of a while: what the loop carries into an iteration.
bool is_carried(const Value& v);

// A while whose trip count is known and whose condition does nothing else: carried value `index`
// goes from `first` by `step` each time, and the condition compares it with a constant.
//   while (i = 0; i < 5) { ...; i + 1 }      first 0, step 1, trips 5
struct CountedLoop {
  size_t index = 0;
  int64_t first = 0, step = 0, trips = 0;

  int64_t last() const { return first + trips * step; }  // value after the loop
};
std::optional<CountedLoop> counted_loop(const Op& op);

struct IntRange {  // both inclusive
  int64_t low = 0, high = 0;
};
// What the counters of all counted loops in a region are inside of their bodies.
using CounterRanges = std::unordered_map<const Value*, IntRange>;
CounterRanges counter_ranges(const Region& region);

// Bounds of a scalar integer that follow from counters, constants and arithmetic on them.
std::optional<IntRange> range_of(const Value* v, const CounterRanges& counters);

}  // namespace tpu::compiler
