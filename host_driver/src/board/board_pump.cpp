// Completions and waiting. The thread that waits pumps: it lets board time pass until an interrupt,
// drains all completion rings, sets events, recovers from faults, and looks again.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "src/board/board_impl.hpp"
#include "src/residency/program.hpp"
#include "src/rings/status.hpp"
#include "tpu/spec/chip_page_regs.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {
// After this every call throws `error`, and nothing waits any more.
void BoardImpl::break_board(const ErrorPtr& error) {
  if (!health_.break_by(error)) {
    return;
  }
  operations_.fail_all(error);
  order_.fail_all(error);
  note_host_event();
}

bool BoardImpl::tells_death(std::span<const uint32_t> msi) {
  return std::any_of(msi.begin(), msi.end(), [](uint32_t vectors) {
    return (vectors >> spec::chip_page::kMsiChip & 1) != 0;
  });
}

// One park of the board. Returns false when it is quiescent (or broke).
bool BoardImpl::run_board(Deadline deadline, bool to_end) {
  try {
    RunOutcome outcome = run_timed(deadline, to_end);
    outbox_.add_console(outcome.console);
    if (tells_death(outcome.msi)) {
      note_deaths();
    }
    return !outcome.quiescent;
  } catch (const std::exception& error) {
    turn_.end_run();
    break_board(model_error(error));
    return false;
  }
}

// Returns true when something was completed. Throws only for who answers a host call and must not
// wait: what fails here fails the board.
bool BoardImpl::pump(Deadline deadline, Pumping how) {
  if (!health_.broken() && calls_.await_answer(deadline)) {
    return true;
  }
  try {
    return !health_.broken() && pump_once(deadline, how);
  } catch (const std::exception& error) {
    break_board(model_error(error));
    return false;
  }
}

bool BoardImpl::pump_once(Deadline deadline, Pumping how) {
  order_.send_waiting();
  bool progress = drain();
  progress = calls_.serve() || progress;
  feeds_.send();
  starves_ = false;
  if (!progress && !health_.broken()) {
    parts_noted_ = false;
    const bool moving = run_board(deadline, how.to_end);
    progress = drain() || parts_noted_;
    if (progress) {
      calls_.serve();
      stalls_ = 0;
    } else if (!moving && !health_.broken() && devices_.in_flight() &&
               !await_batch(deadline, how.sleeps)) {
      stalled();
    }
  }
  recover();
  feeds_.send();
  return progress;
}

bool BoardImpl::drain() {
  bool progress = false;
  for (Device& device : devices_) {
    progress = drain_device(device) || progress;
  }
  return progress;
}

// The end of a launch on a core while others of its gang go on: nobody can tell yet.
bool BoardImpl::part_of_gang(const Device& device, const tpu_completion_t& completion) const {
  if (completion.status != TPU_STATUS_OK || (completion.flags & TPU_CPL_FLAG_MORE) != 0 ||
      !completion_trouble(device, completion).empty()) {
    return false;
  }
  const Operation* op = device.ring.in_flight(completion.seq)->op.get();
  return op != nullptr && op->launch() && !op->finished && op->open > 1;
}

// At an interrupt, while the board's thread has everything and this one waits for operations to
// end: ends of parts are noted there, so that a gang costs one way to this thread and back and not
// one a core. True: nothing else has come.
bool BoardImpl::note_parts() {
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

bool BoardImpl::drain_device(Device& device) {
  bool progress = false;
  tpu_completion_t completion;
  while (!health_.broken() && device.ring.next(completion)) {
    if (const std::string trouble = completion_trouble(device, completion); !trouble.empty()) {
      ring_corrupt(device, trouble);
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

// One whose program has host calls may tell that it stands at one of them.
bool may_call(const Command& command, const tpu_completion_t& completion) {
  return command.op && !command.op->calls.empty() && completion.status == TPU_STATUS_OK &&
         (completion.flags & (TPU_CPL_FLAG_STEP | TPU_CPL_FLAG_LAST_STEP)) == 0 &&
         completion.step < command.op->program->exe.host_calls.size();
}

}  // namespace

// What is wrong with the record at the head of the completion ring, or nothing. A record that is
// not what the firmware wrote, or not what it may say, must not end or fail any command.
std::string BoardImpl::completion_trouble(const Device& device,
                                          const tpu_completion_t& completion) const {
  constexpr uint16_t kFlags = TPU_CPL_FLAG_PHASE | TPU_CPL_FLAG_STEP | TPU_CPL_FLAG_LAST_STEP |
                              TPU_CPL_FLAG_MORE | TPU_CPL_FLAG_CALL;
  if (std::string text = device.ring.trouble(completion); !text.empty()) {
    return text;
  }
  const Command& command = *device.ring.in_flight(completion.seq);
  if (!status_known(completion.status) || (completion.flags & ~kFlags) != 0) {
    return fmt::format("status {} or flags {:#x} are unknown", completion.status, completion.flags);
  }
  const bool call = (completion.flags & TPU_CPL_FLAG_CALL) != 0;
  if (call && ((completion.flags & TPU_CPL_FLAG_MORE) == 0 || !may_call(command, completion))) {
    return fmt::format("it tells of host call {} of command {}, which has none of that number",
                       completion.step, completion.seq);
  }
  if ((completion.flags & TPU_CPL_FLAG_MORE) != 0 && !call && !may_tell_step(command, completion)) {
    return fmt::format("it announces more of command {}, which has no more steps", completion.seq);
  }
  if (completion.epoch != device.ring.epoch()) {
    return fmt::format("it is of epoch {}, the core is in epoch {}", completion.epoch,
                       device.ring.epoch());
  }
  return {};
}

void BoardImpl::ring_corrupt(const Device& device, const std::string& trouble) {
  break_board(std::make_shared<Error>(
      ErrorCode::kInternal,
      fmt::format("the completion ring is corrupt at record {}: {}. What was in flight is lost; "
                  "open the board again",
                  device.ring.taken(), trouble),
      ErrorPlace{.device = device.id, .op = {}, .source = {}}));
}

// The device counts its completions, so that a record whose phase is wrong shows as well. True: the
// ring was read or the board is broken, so there is something to go on with.
bool BoardImpl::completions_missing() {
  for (Device& device : devices_) {
    if (device.ring.open() == 0) {
      continue;
    }
    const uint32_t written = registers_.read(device, spec::core_page::kCplTail);
    if (drain_device(device) || health_.broken()) {
      stalls_ = 0;
      return true;
    }
    if (written != device.ring.taken()) {
      ring_corrupt(device, fmt::format("it is not there, though {} were written", written));
      return true;
    }
  }
  return false;
}

void BoardImpl::complete(Device& device, const tpu_completion_t& completion) {
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

// Nothing is in flight on the board and something waits: repeat the doorbells (absolute counts, so
// this is harmless), then look for completions that got lost, take the launches off, then give up.
void BoardImpl::stalled() {
  const Turn::Kept whole(turn_);
  ++stalls_;
  if (stalls_ == 1) {
    for (Device& device : devices_) {
      if (device.ring.open() > 0) {
        registers_.write(device, spec::core_page::kCmdTail, device.ring.tail());
        ++repeated_doorbells_;
      }
    }
    return;
  }
  if (stalls_ == 2) {
    const TransportStats stats = transport_->stats();
    const auto stuck = std::ranges::find_if(
        devices_, [](const Device& device) { return device.first_launch() != nullptr; });
    stall_text_ = tell_hang("deadlock", stuck == devices_.end() ? nullptr : stuck->first_launch(),
                            stats.waits, stats);
    if (completions_missing() || reboot_dead()) {
      return;
    }
    abort_launches();
    return;
  }
  std::string harts;
  for (const Device& device : devices_) {
    harts += device.ring.open() > 0 ? core_text(device) : std::string();
  }
  break_board(std::make_shared<Error>(
      ErrorCode::kTimeout,
      fmt::format("the board does not answer: nothing is in flight and commands are open{}{}{}",
                  harts, stall_text_.empty() ? "" : "\n", stall_text_)));
}

}  // namespace tpu::driver
