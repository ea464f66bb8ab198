// A record whose checksum is right may still be one that no board has made.
#include "record/step_record_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "board/board_loader.hpp"

namespace tpu::spec {
namespace {

[[noreturn]] void refuse(uint32_t core, const std::string& what) {
  throw RecordError(fmt::format(
      "the recorded step is inconsistent: core {}: {}; record the step again", core, what));
}

class CoreCheck {
 public:
  CoreCheck(const StepRecord& record, const RecordedCore& core, const BoardParams& board)
      : record_(record), core_(core), board_(board) {}

  void run() const {
    if (core_.end < core_.begin || core_.end > (uint64_t{1} << 62)) {
      refuse(core_.core, "its step ends before it begins");
    }
    for (size_t i = 0; i < core_.commands.size(); ++i) {
      command(i);
    }
    items();
    host();
  }

 private:
  bool has_core(uint32_t core) const {
    return std::ranges::any_of(record_.cores,
                               [&](const RecordedCore& each) { return each.core == core; });
  }
  bool valid(const SemaphoreUse& use) const {
    return use.amount == 0 || (has_core(use.core) && use.semaphore < board_.core.semaphores);
  }
  void command(size_t index) const {
    const RecordedCommand& c = core_.commands[index];
    const bool times = core_.begin <= c.issued && c.issued <= c.start && c.start <= c.free_at &&
                       c.start <= c.done && c.done <= core_.end && c.held <= c.start;
    const bool flow =
        !c.transfers() ||
        (c.from <= RecordedMemory::kHbm && c.to <= RecordedMemory::kHbm && has_core(c.from_core) &&
         has_core(c.to_core) && c.start <= c.flow_end && c.flow_end <= c.done);
    const auto uses = [&](const auto& all) {
      return std::ranges::all_of(all, [&](const SemaphoreUse& use) { return valid(use); });
    };
    if (!has_queue(board_, c.queue) || !times || !flow || !uses(c.wait) || !uses(c.signal)) {
      refuse(core_.core,
             fmt::format("command {} has an invalid queue, time, memory or semaphore", index));
    }
  }
  // Each command is issued once, in order; the last item is the end.
  void items() const {
    uint64_t before = core_.begin;
    size_t issued = 0;
    for (const SequencerItem& item : core_.items) {
      using Kind = SequencerItem::Kind;
      const bool halt = item.kind == Kind::kHalt;
      const bool known = item.kind == Kind::kIssue
                             ? item.index == issued && issued < core_.commands.size()
                             : item.kind <= Kind::kHalt && item.index < 256;
      if (!known || item.arrived < before || item.went < item.arrived || item.went > core_.end ||
          halt != (&item == &core_.items.back())) {
        refuse(core_.core, "an item of its sequencer has an invalid kind, index or time");
      }
      issued += item.kind == Kind::kIssue ? 1 : 0;
      before = item.went;
    }
    if (core_.items.empty() || issued != core_.commands.size()) {
      refuse(core_.core, "its sequencer did not issue all of its commands");
    }
  }

  void host() const {
    uint64_t before = core_.begin;
    for (const HostTransfer& transfer : core_.host) {
      if (transfer.begin < before || transfer.end < transfer.begin || transfer.end > core_.end) {
        refuse(core_.core, "a transfer with the host has an invalid time");
      }
      before = transfer.end;
    }
  }

  const StepRecord& record_;
  const RecordedCore& core_;
  const BoardParams& board_;
};

}  // namespace

void check_record(const StepRecord& record) {
  const BoardParams board = board_of(record);
  if (record.cores.empty() && record.left_out == 0) {
    throw RecordError("the recorded step has no cores; record the step again");
  }
  for (const RecordedFault& fault : record.faults) {
    if (fault.core >= static_cast<uint64_t>(core_count(board)) ||
        (record.left_out == 0 && (fault.cycle < record.begin() || fault.cycle > record.end()))) {
      refuse(fault.core, "a fault on purpose is of another step or board");
    }
  }
  uint32_t next = 0;
  for (const RecordedCore& core : record.cores) {
    if (core.core < next || core.core >= static_cast<uint64_t>(core_count(board))) {
      refuse(core.core, "the board does not have this core, or the core occurs twice");
    }
    next = core.core + 1;
    CoreCheck(record, core, board).run();
  }
}

}  // namespace tpu::spec
