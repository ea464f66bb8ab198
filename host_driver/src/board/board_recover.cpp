// Recovery: cores that are HELD after a failed command have flushed what was queued. When all of it
// has come back, the fault records are read, the cores resumed with a new epoch, and what never
// started is sent again in the old order, unless one of its inputs was lost.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "src/board/board_impl.hpp"
#include "src/residency/program.hpp"
#include "src/rings/status.hpp"
#include "src/texts/fault_text.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {
namespace {

namespace core_page = spec::core_page;

constexpr int kMaxLaunchAttempts = 4;
constexpr int kMaxResumePolls = 20000;

bool any_is(const Operation& op, uint16_t status) {
  return std::find(op.status.begin(), op.status.end(), status) != op.status.end();
}

bool tells_no_start(uint16_t code) {
  return code == TPU_FAULT_GANG_MISMATCH || code == TPU_FAULT_NOT_STARTED;
}

}  // namespace

// Lets time pass until every held core has reported all that was queued on it.
void BoardImpl::collect_held() {
  const auto open_on_held = [&] {
    return std::any_of(devices_.begin(), devices_.end(),
                       [](const Device& device) { return device.held && device.ring.open() > 0; });
  };
  while (!health_.broken() && open_on_held()) {
    const bool moving = run_board();
    if (completions_.drain()) {
      stalls_ = 0;
    } else if (!moving) {
      stalled();
    }
  }
}

void BoardImpl::resume_held() {
  for (Device& device : devices_) {
    if (device.held) {
      registers_.write(device, core_page::kResume, device.ring.epoch() + 1);
    }
  }
  for (Device& device : devices_) {
    if (!device.held) {
      continue;
    }
    int polls = 0;
    while (registers_.read(device, core_page::kEpoch) != device.ring.epoch() + 1) {
      if (++polls > kMaxResumePolls) {
        break_board(
            std::make_shared<Error>(ErrorCode::kTimeout, "the core does not resume after a fault",
                                    ErrorPlace{.device = device.id, .op = {}, .source = {}}));
        return;
      }
    }
    device.ring.resume();
    device.held = false;
  }
}

// True when a core of the gang says that no step ran: the first one begins on all cores together.
bool BoardImpl::never_started(const Operation& op) {
  return std::any_of(op.commands.begin(), op.commands.end(), [&](const auto& command) {
    if (op.status[command->index] == kStatusLost) {
      return false;  // the core may be gone
    }
    const tpu_fault_record_t record = harts_.read_fault(devices_[command->device]);
    return record.launch_id == op.launch_id && tells_no_start(record.code);
  });
}

// All cores of a failed launch have reported: is it to be sent again, given back or lost?
void BoardImpl::judge_launch(const std::shared_ptr<Operation>& op,
                             std::vector<std::shared_ptr<Operation>>& again) {
  size_t worst = 0;
  bool refused = false;
  for (size_t i = 0; i < op->status.size(); ++i) {
    if (status_refused(op->status[i])) {
      worst = i;
      refused = true;
      break;
    }
    if (op->status[i] == TPU_STATUS_FAULT || op->status[i] == kStatusLost) {
      worst = i;
    }
  }
  Command& first = *op->commands[worst];
  if (refused) {
    const bool corrupt =
        op->status[worst] == TPU_STATUS_BAD_CRC || op->status[worst] == TPU_STATUS_BAD_SEQ;
    op->on_board = false;
    if (corrupt && first.attempts++ == 0) {
      again.push_back(op);
      return;
    }
    operations_.finish(*op, status_error(op->status[worst], op->what, first.device));
    return;
  }
  // A core that never started the launch kept the whole gang from its first step.
  if (any_is(*op, TPU_STATUS_FLUSHED)) {
    op->on_board = false;
    if (first.attempts++ < kMaxLaunchAttempts) {
      again.push_back(op);
      return;
    }
    operations_.finish(
        *op, std::make_shared<Error>(ErrorCode::kInternal, op->what + ": flushed again and again"));
    return;
  }
  if (op->verdict) {
    const bool unfed = op->feed && !op->feed->infeed.empty() && op->feed->given == 0;
    op->on_board = !unfed && !never_started(*op);
    operations_.finish(*op, op->verdict);
    return;
  }
  const Device& device = devices_[first.device];
  const bool died = op->status[worst] == kStatusLost && op->trap;
  const tpu_fault_record_t record = died ? *op->trap : harts_.read_fault(device);
  if (died) {
    if (record.launch_id != op->launch_id) {
      op->on_board = false;  // the hart died before or after it: no step ran
    }
    operations_.finish(
        *op, fault_error(record, op->program->exe, device.id, op->stall_text, {}, op->trap_place));
    return;
  }
  const bool no_engine_fault = record.launch_id != op->launch_id ||
                               record.code == TPU_FAULT_HOST_ABORT ||
                               record.code == TPU_FAULT_PEER_LOST || tells_no_start(record.code);
  if (no_engine_fault && never_started(*op)) {
    op->on_board = false;
  }
  if (record.launch_id != op->launch_id) {
    operations_.finish(
        *op, std::make_shared<Error>(
                 ErrorCode::kDeviceFault,
                 fmt::format("{}: {}{}{}", op->what, status_name(op->status[worst]),
                             op->stall_text.empty() ? "" : ": nothing in flight\n", op->stall_text),
                 ErrorPlace{.device = device.id, .op = {}, .source = {}}));
    return;
  }
  std::string waits = op->stall_text;
  if (record.code == TPU_FAULT_WATCHDOG) {
    const TransportStats stats = transport_->stats();
    waits = tell_hang("watchdog", op.get(), stats.watchdog_waits, stats);
  }
  std::string core_says = harts_.core_text(device, record.cycle);
  const std::string findings = records_.take_findings(*op);
  core_says += findings.empty() ? "" : "\nthe checker says:\n" + findings;
  ErrorPtr fault = fault_error(record, op->program->exe, device.id, waits, core_says);
  if (health_.cancelled() && record.code == TPU_FAULT_HOST_ABORT) {
    fault = std::make_shared<Error>(
        ErrorCode::kCancelled,
        fmt::format("{}: {}", health_.cancelled()->message(), fault->message()), fault->place());
  }
  operations_.finish(*op, fault);
}

void BoardImpl::resend(std::vector<std::shared_ptr<Operation>>& launches) {
  std::vector<std::pair<std::shared_ptr<Operation>, std::shared_ptr<Command>>> work;
  for (const auto& op : launches) {
    if (op->feed) {
      feeds_.rewind(*op->feed);
    }
    work.emplace_back(op, nullptr);
  }
  for (const auto& command : operations_.take_retries()) {
    if (const auto op = command->op; op && !op->finished) {
      work.emplace_back(op, command);
    }
  }
  std::stable_sort(work.begin(), work.end(), [](const auto& a, const auto& b) {
    return a.first->number != b.first->number
               ? a.first->number < b.first->number
               : a.second && b.second && a.second->index < b.second->index;
  });
  for (const auto& [op, command] : work) {
    ErrorPtr error = health_.broken() ? health_.broken() : op->failed_input();
    if (!error && op->launch()) {
      error = health_.cancelled();
    }
    if (error) {
      operations_.finish(*op, error);
    }
    if (op->finished) {
      continue;
    }
    if (command && op->error) {
      // Another piece has failed: the operation is over before anything that takes its event for
      // an input is sent again.
      operations_.end_piece(*op, *command);
      continue;
    }
    if (command) {
      stop_counting(*command);
      op->status[command->index] = kStatusOpen;
      operations_.append(command);
      continue;
    }
    // The board remembers aborted gangs by their launch id, so the launch needs a fresh one.
    launcher_.give_id(*op);
    op->verdict = nullptr;
    op->open = op->commands.size();
    std::fill(op->status.begin(), op->status.end(), kStatusOpen);
    for (const auto& each : op->commands) {
      operations_.append(each);
    }
    feeds_.queue(*op);
  }
  registers_.make_room(devices_.size());
  for (Device& device : devices_) {
    registers_.ring(device, device.ring);
  }
}

void BoardImpl::recover() {
  const bool held = devices_.any_held();
  if (health_.broken() || (!held && !operations_.needs_recovery())) {
    return;
  }
  const Turn::Kept whole(turn_);
  collect_held();
  if (health_.broken()) {
    return;
  }
  ++recoveries_;
  std::vector<std::shared_ptr<Operation>> again;
  auto failed = operations_.take_failed_launches();
  std::sort(failed.begin(), failed.end(),
            [](const auto& a, const auto& b) { return a->number < b->number; });
  for (const auto& op : failed) {
    judge_launch(op, again);
  }
  resume_held();
  resend(again);
  stall_text_.clear();
}

// Takes the launches that are in flight off the board, oldest of each core first. All cores of a
// gang are told: one that has not bound the launch yet forgets it, and one that has tells the rest.
void BoardImpl::abort_launches() {
  for (const Device& device : devices_) {
    if (Operation* op = device.first_launch(); op != nullptr) {
      op->stall_text = stall_text_;
      registers_.write(device, core_page::kAbort, op->launch_id);
    }
  }
}

// Takes everything off a core whose hart is dead. What it was is kept: the reset clears the record.
void BoardImpl::lose_commands(Device& device) {
  const tpu_fault_record_t record = harts_.read_fault(device);
  const bool trapped = record.code == TPU_FAULT_FW_TRAP;
  const std::string place = trapped ? harts_.trap_place(device, record) : std::string();
  device.trap = std::make_shared<Error>(
      ErrorCode::kDeviceFault, trapped ? trap_text(record, place) : "the control hart died",
      ErrorPlace{.device = device.id, .op = {}, .source = {}});
  for (const auto& command : device.ring.take_all()) {
    const auto op = command->op;
    if (!op) {
      continue;
    }
    if (op->launch() && op->open == 1 && op->stall_text.empty() && !trapped) {
      op->stall_text = "the control hart of this core died and was started again";
    }
    if (op->launch() && trapped) {
      op->trap = record;
      op->trap_place = place;
    }
    operations_.report(command, kStatusLost);
  }
}

// Harts that are dead get a reset and a fresh boot; what was open on them is known not to go on.
bool BoardImpl::reboot_dead() {
  std::vector<int> dead;
  for (const Device& device : devices_) {
    if (harts_.dead(device)) {
      dead.push_back(device.id);
    }
  }
  if (dead.empty()) {
    return false;
  }
  harts_.note_deaths(devices_);
  for (const int id : dead) {
    lose_commands(devices_[id]);
  }
  stalls_ = 0;
  try {
    booter_.boot(dead);
  } catch (const Error& error) {
    break_board(std::make_shared<Error>(error));
    return true;
  } catch (const std::exception& error) {
    break_board(model_error(error));
    return true;
  }
  loader_.load_again(dead);
  return true;
}

}  // namespace tpu::driver
