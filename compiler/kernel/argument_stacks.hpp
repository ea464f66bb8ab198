// Stacks of arguments that nobody has to make: a counted loop of main takes one argument of equal
// ones in each iteration, such as the weights of a layer.
//   %s = concatenate %w0, %w1, .. over dim 0;  while (i): .. dynamic_slice %s, %i, 0, 0
// The slice reads the argument where it is: the slot of the operand comes from a table in SMEM.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "ir/graph.hpp"

namespace tpu::compiler {

// SMEM of `kib` KiB: the tables are between counters and the lists of its second half.
inline constexpr int64_t kSlotTablesBegin = 1024;
inline constexpr int64_t slot_table_words(int64_t kib) {
  return std::max<int64_t>(0, kib * 1024 / 2 - kSlotTablesBegin) / 4;
}

// Slots of main's values in the order in which a launch binds them (plan/slots.hpp); -1: behind the
// low words of an integer.
struct SlotNumbers {
  std::vector<int> arguments, results;
  explicit SlotNumbers(const Function& main);
};

// What is left of the SMEM for tables, and of the tables that operands can name. A loop has one
// table for all lists of slots that differ by a constant, such as those of the arrays of layers.
class SlotTableBudget {
 public:
  explicit SlotTableBudget(int64_t words) : words_(words) {}

  // Slots that the loop takes in its iterations, list by list: all of them or, for false, none.
  bool take(const Op& loop, const std::vector<std::vector<int>>& lists);

 private:
  int64_t words_;
  std::set<std::pair<const Op*, std::vector<int>>> tables_;  // for look-up only
};

class ArgumentStacks {
 public:
  ArgumentStacks(const Module& module, const SlotNumbers& slots, SlotTableBudget& budget);

  // The argument that the slice reads in each iteration; null: it slices another array.
  const std::vector<const Value*>* arguments(const Op& slice) const;
  // A concatenation that only such slices read.
  bool is_stack(const Op& op) const { return stacks_.contains(&op); }

 private:
  std::map<const Op*, std::vector<const Value*>> arguments_;  // for look-up only
  std::set<const Op*> stacks_;
};

}  // namespace tpu::compiler
