// Stacks of results that nobody has to make: a counted loop of main writes one part in each
// iteration, and the parts are results of the program, such as updated weights.
//   while (i, %s): .. dynamic_update_slice %s, %w, %i, 0, 0;  return %s[0], %s[1], ..
// The loop writes the result where it shall be: the slot of the operand comes from a table in SMEM.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "kernel/argument_stacks.hpp"
#include "kernel/kernels.hpp"

namespace tpu::compiler {

class ResultStacks {
 public:
  ResultStacks() = default;
  // `without`: loops of main that make their stacks.
  ResultStacks(const Module& module, const SlotNumbers& slots, SlotTableBudget& budget,
               const std::set<const Op*>& without);

  // Numbers of the results that the update writes, one in each iteration; null: it updates another
  // array.
  const std::vector<size_t>* results(const Op& update) const;
  // Carried value `index` of the loop is such a stack: it has no buffer.
  bool is_stack(const Op& loop, size_t index) const { return stacks_.contains({&loop, index}); }
  // Result `number` of main is written in a loop.
  bool holds(size_t number) const { return written_.contains(number); }

 private:
  std::map<const Op*, std::vector<size_t>> results_;  // by update, for look-up only
  std::set<std::pair<const Op*, size_t>> stacks_;
  std::set<size_t> written_;
};

// A result that takes the memory of a donated argument is written in a loop, and the argument is
// read behind the loop or in later iterations: loops of main in which results must not be written.
std::set<const Op*> loops_without_results(const Function& main, const KernelProgram& program);

}  // namespace tpu::compiler
