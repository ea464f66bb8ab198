// What code generation knows about control flow before kernels are made: loops with a counter,
// integers that the sequencer computes by itself, values that may differ between cores.
#pragma once

#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "ir/control.hpp"
#include "kernel/argument_stacks.hpp"
#include "kernel/core_classes.hpp"
#include "kernel/result_stacks.hpp"

namespace tpu::compiler {

// Registers of the sequencer that an expression may take.
inline constexpr int kScalarRegisters = 4;
// Operations of an expression, shared parts counted at each use: the sequencer computes it anew
// wherever it is needed.
inline constexpr int kScalarOps = 64;

class ControlFacts {
 public:
  // `table_words`: of SMEM, for the slots that loops take one by one, of arguments and, unless
  // `without_results` is null, of results of the program that loops outside of it write.
  explicit ControlFacts(const Module& module, int64_t table_words = 0,
                        const std::set<const Op*>* without_results = nullptr);

  // Loops whose trip count is known and whose last counter value nobody reads.
  const CountedLoop* counted(const Op& op) const;

  // True if the sequencer can compute the scalar: counters, constants, partition_id, and integer
  // arithmetic on them.
  bool on_sequencer(const Value* v) const;
  // Ops that only serve such scalars: no kernel computes them.
  // The same of stacks that no kernel makes.
  bool skipped(const Op& op) const { return skipped_.contains(&op) || stacks_.is_stack(op); }

  const ArgumentStacks& stacks() const { return stacks_; }
  const ResultStacks& result_stacks() const { return result_stacks_; }

  // Cores that surely have the same of the value.
  const CoreClasses& classes(const Value* v) const { return classes_.of(v); }
  // True if it may differ between the cores of the program.
  bool varies(const Value* v) const { return !classes(v).empty(); }

 private:
  // What the sequencer needs for an integer.
  struct ScalarCost {
    int registers = kScalarRegisters + 1;  // more than kScalarRegisters: not possible
    int ops = 0;
  };
  ScalarCost cost(const Value* v) const;
  ScalarCost cost_of(const Op& op) const;  // from those of its operands
  void find_costs(const Region& body);
  void find_skipped(const Module& module, const Uses& uses);
  bool serves_sequencer(const Op& user, const Value* v) const;

  std::map<const Op*, CountedLoop> counted_;
  std::set<const Value*> counters_;
  std::unordered_map<const Value*, ScalarCost> costs_;  // of results that the sequencer can compute
  std::unordered_set<const Op*> skipped_;
  ValueClasses classes_;
  SlotTableBudget budget_;
  const ArgumentStacks stacks_;
  const ResultStacks result_stacks_;
};

}  // namespace tpu::compiler
