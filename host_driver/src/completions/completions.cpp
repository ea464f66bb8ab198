// Checks of records, and where they go.
#include "src/completions/completions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "src/residency/program.hpp"
#include "src/rings/status.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {

bool Completions::drain() {
  bool progress = false;
  for (Device& device : devices_) {
    progress = drain_device(device) || progress;
  }
  return progress;
}

// The end of a launch on a core while others of its gang go on: nobody can tell yet.
bool Completions::part_of_gang(const Device& device, const tpu_completion_t& completion) const {
  if (completion.status != TPU_STATUS_OK || (completion.flags & TPU_CPL_FLAG_MORE) != 0) {
    return false;
  }
  std::string wrong;
  const Command* command = command_of(device, completion, wrong);
  const Operation* op = command == nullptr ? nullptr : command->op.get();
  return op != nullptr && op->launch() && !op->finished && op->open > 1;
}

bool Completions::note_parts() {
  bool noted = false;
  for (Device& device : devices_) {
    tpu_completion_t completion;
    while (device.ring.next(completion)) {
      if (!part_of_gang(device, completion)) {
        return false;
      }
      complete(device, completion);
      noted = parts_noted_ = true;
    }
  }
  return noted;
}

bool Completions::drain_device(Device& device) {
  bool progress = false;
  tpu_completion_t completion;
  while (!health_.broken() && device.ring.next(completion)) {
    std::string wrong;
    if (command_of(device, completion, wrong) == nullptr) {
      corrupt(device, wrong);
      return progress;
    }
    progress = true;
    complete(device, completion);
  }
  return progress;
}

namespace {

// A launch may tell the end of each step but the last.
bool may_tell_step(const Command& command, const tpu_completion_t& completion) {
  tpu_command_launch_t launch;
  std::memcpy(&launch, command.wire.data(), sizeof(launch));
  constexpr uint16_t kEnds = TPU_CPL_FLAG_STEP | TPU_CPL_FLAG_LAST_STEP;
  return command.opcode == TPU_OP_LAUNCH && completion.status == TPU_STATUS_OK &&
         (completion.flags & kEnds) == TPU_CPL_FLAG_STEP && completion.step < launch.steps;
}

// One whose program has host calls may tell that it stands at one of them, or that a transfer is
// over.
bool may_call(const Command& command, const tpu_completion_t& completion) {
  return command.op && !command.op->calls.empty() && completion.status == TPU_STATUS_OK &&
         (completion.flags & (TPU_CPL_FLAG_STEP | TPU_CPL_FLAG_LAST_STEP)) == 0 &&
         (completion.step == spec::core_page::kCallMoved
              ? !command.op->calls[command.index].transfers.empty()
              : completion.step < command.op->program->exe.host_calls.size());
}

}  // namespace

// The command that the record at the head of the completion ring is of; null: the record is wrong
// in the way that `wrong` says.
const Command* Completions::command_of(const Device& device, const tpu_completion_t& completion,
                                       std::string& wrong) const {
  constexpr uint16_t kFlags = TPU_CPL_FLAG_PHASE | TPU_CPL_FLAG_STEP | TPU_CPL_FLAG_LAST_STEP |
                              TPU_CPL_FLAG_MORE | TPU_CPL_FLAG_CALL;
  const Command* command = device.ring.command_of(completion, wrong);
  if (command == nullptr) {
    return nullptr;
  }
  const bool more = (completion.flags & TPU_CPL_FLAG_MORE) != 0;
  const bool call = (completion.flags & TPU_CPL_FLAG_CALL) != 0;
  if (!status_known(completion.status) || (completion.flags & ~kFlags) != 0) {
    wrong =
        fmt::format("status {} or flags {:#x} are unknown", completion.status, completion.flags);
  } else if (call && (!more || !may_call(*command, completion))) {
    wrong = fmt::format("it names host call {} of command {}, which does not exist",
                        completion.step, completion.seq);
  } else if (more && !call && !may_tell_step(*command, completion)) {
    wrong = fmt::format("it announces more of command {}, which has no more steps", completion.seq);
  } else if (completion.epoch != device.ring.epoch()) {
    wrong = fmt::format("it is of epoch {}, the core is in epoch {}", completion.epoch,
                        device.ring.epoch());
  }
  return wrong.empty() ? command : nullptr;
}

void Completions::corrupt(const Device& device, const std::string& wrong) {
  break_board_(std::make_shared<Error>(
      ErrorCode::kInternal,
      fmt::format("the completion ring is corrupt at record {}: {}. What was in flight is lost; "
                  "open the board again",
                  device.ring.taken(), wrong),
      ErrorPlace{.device = device.id, .op = {}, .source = {}}));
}

bool Completions::find_missing() {
  for (Device& device : devices_) {
    if (device.ring.open() == 0) {
      continue;
    }
    const uint32_t written = registers_.read(device, spec::core_page::kCplTail);
    if (drain_device(device) || health_.broken()) {
      return true;
    }
    if (written != device.ring.taken()) {
      corrupt(device, fmt::format("it is missing, although {} were written", written));
      return true;
    }
  }
  return false;
}

void Completions::complete(Device& device, const tpu_completion_t& completion) {
  const std::shared_ptr<Command> command = device.ring.accept(completion);
  if ((completion.flags & TPU_CPL_FLAG_CALL) != 0) {
    calls_.add(*command, completion.step, device.ring.taken());
  }
  if ((completion.flags & TPU_CPL_FLAG_MORE) != 0) {
    return;  // the launch goes on
  }
  if (completion.status != TPU_STATUS_OK && status_holds(completion.status, command->opcode)) {
    device.held = true;
  }
  if (const auto op = command->op) {
    op->end_cycle = std::max(op->end_cycle, completion.cycle);
  }
  operations_.report(command, completion.status);
}

}  // namespace tpu::driver
