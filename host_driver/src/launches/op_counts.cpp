// Sums of tallies.
#include "src/launches/op_counts.hpp"

#include <algorithm>

#include "src/texts/fault_text.hpp"

namespace tpu::driver {

void OpCounts::add(const std::shared_ptr<const exe::ExecutableT>& program,
                   const std::vector<OpTally>& launch) {
  auto found = std::ranges::find(programs_, program, &Program::executable);
  if (found == programs_.end()) {
    programs_.push_back({program, {}});
    found = programs_.end() - 1;
  }
  for (const OpTally& tally : launch) {
    OpTally& sum = found->ops[tally.op_id];
    sum.op_id = tally.op_id;
    sum.cycles += tally.cycles;
    sum.busy_cycles += tally.busy_cycles;
    sum.commands += tally.commands;
  }
}

std::vector<OpTime> OpCounts::list() const {
  std::vector<OpTime> times;
  for (const Program& program : programs_) {
    for (const auto& [op_id, tally] : program.ops) {
      const ErrorPlace place = op_place(*program.executable, op_id, 0);
      times.push_back({program.executable->name, place.op, place.source, tally.cycles,
                       tally.busy_cycles, tally.commands});
    }
  }
  return times;
}

}  // namespace tpu::driver
