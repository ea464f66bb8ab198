// Cores are resumed, and what was flushed sent again, with the board lock kept: nobody submits in
// between. What is submitted to a core that is still held is flushed, as all that is queued there.
#include "src/recovery/recovery.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "src/residency/program.hpp"
#include "src/texts/fault_text.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {
namespace {

namespace core_page = spec::core_page;

constexpr int kMaxResumePolls = 20000;
// The engines of a core become idle, and the other cores of its gang arrive, each within the time
// of the watchdog; the rest is for the firmware.
constexpr uint64_t kDrainWatchdogs = 3;
constexpr uint64_t kDrainLooks = 16;  // in the time of the watchdog: its end is no interrupt

}  // namespace

// Every held core has reported all that was queued on it, and so have all cores of a launch that
// failed on one of them: what was flushed behind a launch may not be sent again before it, since it
// would read what was there before.
bool Recovery::all_reported() const {
  return !devices_.partly_failed() &&
         std::none_of(devices_.begin(), devices_.end(),
                      [](const Device& device) TPU_REQUIRES(board_lock) {
                        return device.held && device.ring.open() > 0;
                      });
}

bool Recovery::drains(const Device& device) {
  const uint32_t state =
      registers_.read(device, core_page::kFwState) & core_page::kFwStateStateMask;
  return state == core_page::kStateDrain;
}

// Cores end an aborted launch together. For one whose hart has died, or was started again, the
// others wait as long as the watchdog, and all the time nothing is in flight.
bool Recovery::outlast_drains(const std::function<bool()>& over) {
  const uint64_t watchdog = static_cast<uint64_t>(params_.mgmt.watchdog_us) *
                            static_cast<uint64_t>(params_.core.clock_mhz);
  bool ended = over();
  for (uint64_t look = 0; look < kDrainWatchdogs * kDrainLooks && !ended && !health_.broken();
       ++look) {
    const uint64_t until = transport_->now() + watchdog / kDrainLooks;
    while (!ended && !health_.broken() && transport_->now() < until) {
      hooks_.run_until(until);
      ended = over();
    }
  }
  return ended;
}

bool Recovery::any_open_drains() {
  return std::ranges::any_of(devices_, [this](const Device& device) TPU_REQUIRES(board_lock) {
    return device.ring.open() > 0 && drains(device);
  });
}

bool Recovery::await_epoch(const Device& device) {
  const auto resumed = [&]() TPU_REQUIRES(board_lock) {
    return registers_.read(device, core_page::kEpoch) == device.ring.epoch() + 1;
  };
  if (drains(device) && outlast_drains(resumed)) {
    return true;
  }
  if (health_.broken()) {
    return false;
  }
  int polls = 0;
  while (!resumed()) {
    if (++polls > kMaxResumePolls) {
      hooks_.break_board(
          std::make_shared<Error>(ErrorCode::kTimeout, "the core does not resume after a fault",
                                  ErrorPlace{.device = device.id, .op = {}, .source = {}}));
      return false;
    }
  }
  return true;
}

void Recovery::resume_held() {
  for (Device& device : devices_) {
    if (device.held) {
      registers_.write(device, core_page::kResume, device.ring.epoch() + 1);
    }
  }
  for (Device& device : devices_) {
    if (!device.held) {
      continue;
    }
    if (!await_epoch(device)) {
      return;
    }
    device.ring.resume();
    device.held = false;
  }
}

// In the order of submission.
void Recovery::resend(const std::vector<std::shared_ptr<Operation>>& launches,
                      const std::vector<std::shared_ptr<Command>>& retries) {
  std::vector<std::pair<std::shared_ptr<Operation>, std::shared_ptr<Command>>> work;
  for (const auto& op : launches) {
    if (op->feed) {
      feeds_.rewind(*op->feed);
    }
    work.emplace_back(op, nullptr);
  }
  for (const auto& command : retries) {
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
    if (!op->finished) {
      command ? resend_command(*op, command) : resend_launch(*op);
    }
  }
  registers_.make_room(devices_.size());
  for (Device& device : devices_) {
    registers_.ring(device, device.ring);
  }
}

void Recovery::resend_command(Operation& op, const std::shared_ptr<Command>& command) {
  if (op.error) {
    // Another piece has failed: the operation is over before anything that takes its event for an
    // input is sent again.
    operations_.end_piece(op, *command);
    return;
  }
  stop_counting(*command);
  op.status[command->index] = kStatusOpen;
  operations_.append(command);
}

// The board remembers aborted gangs by their launch id, so the launch needs a fresh one.
void Recovery::resend_launch(Operation& launch) {
  launcher_.give_id(launch);
  launch.verdict = nullptr;
  launch.open = launch.commands.size();
  std::fill(launch.status.begin(), launch.status.end(), kStatusOpen);
  for (const auto& each : launch.commands) {
    operations_.append(each);
  }
  feeds_.queue(launch);
  feeds_.send();  // as in Launcher::submit: later launches could fill the firmware's window
}

// A hart was started again, and the other cores of a launch that it lost wait for it. What was in
// front of the launch need not wait: where it ends the hart again, it is given up before it takes
// another launch with it.
void Recovery::resend_in_front() {
  const std::optional<uint64_t> launch = devices_.partly_failed();
  if (!launch || devices_.any_held()) {
    return;
  }
  if (const auto retries = operations_.take_retries(*launch); !retries.empty()) {
    const Turn::Kept whole(turn_);
    resend({}, retries);
  }
}

void Recovery::recover() {
  if (health_.broken() || !(devices_.any_held() || operations_.needs_recovery())) {
    return;
  }
  if (!all_reported()) {
    return resend_in_front();
  }
  const Turn::Kept whole(turn_);
  ++recoveries_;
  std::vector<std::shared_ptr<Operation>> again;
  auto failed = operations_.take_failed_launches();
  std::sort(failed.begin(), failed.end(),
            [](const auto& a, const auto& b) { return a->number < b->number; });
  std::copy_if(failed.begin(), failed.end(), std::back_inserter(again),
               [&](const auto& op) TPU_REQUIRES(board_lock) { return judge_.judge(op); });
  resume_held();
  resend(again, operations_.take_retries());
  stall_text_.clear();
}

// All cores of a gang are told: one that has not bound the launch yet forgets it, and one that has
// tells the rest.
void Recovery::abort_launches() {
  for (const Device& device : devices_) {
    if (Operation* op = device.first_launch(); op != nullptr) {
      op->stall_text = stall_text_;
      registers_.write(device, core_page::kAbort, op->launch_id);
    }
  }
}

// Takes everything off a core whose hart is dead. What it was is kept: the reset clears the record.
void Recovery::lose_commands(Device& device) {
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
bool Recovery::reboot_dead() {
  std::vector<int> dead;
  for (const Device& device : devices_) {
    if (harts_.dead(device)) {
      dead.push_back(device.id);
    }
  }
  return !dead.empty() && reboot(dead);
}

// A hart that runs sees a doorbell, also one that says nothing new, and makes a pass of its main
// loop: another beat of its heart.
std::vector<int> Recovery::find_hung() {
  std::vector<std::pair<int, uint32_t>> beats;
  for (const Device& device : devices_) {
    if (device.ring.open() > 0) {
      beats.emplace_back(device.id, registers_.read(device, core_page::kHeartbeat));
      registers_.write(device, core_page::kCmdTail, device.ring.tail());
    }
  }
  hooks_.run();
  std::vector<int> hung;
  for (const auto& [id, beat] : beats) {
    if (registers_.read(devices_[id], core_page::kHeartbeat) == beat) {
      hung.push_back(id);
    }
  }
  return hung;
}

bool Recovery::reboot(const std::vector<int>& dead) {
  harts_.note_deaths(devices_);
  for (const int id : dead) {
    lose_commands(devices_[id]);
  }
  stalls_ = 0;
  try {
    booter_.boot(dead);
  } catch (const Error& error) {
    hooks_.break_board(std::make_shared<Error>(error));
    return true;
  } catch (const std::exception& error) {
    hooks_.break_board(model_error(error));
    return true;
  }
  loader_.load_again(dead);
  return true;
}

void Recovery::stalled() {
  const Turn::Kept whole(turn_);
  switch (++stalls_) {
    case 1:
      return repeat_doorbells();
    case 2:
      return end_stall();
    default:
      return give_up();
  }
}

void Recovery::repeat_doorbells() {
  for (const Device& device : devices_) {
    if (device.ring.open() > 0) {
      registers_.write(device, core_page::kCmdTail, device.ring.tail());
      ++repeated_doorbells_;
    }
  }
}

void Recovery::end_stall() {
  if (const ErrorPtr lost = hooks_.lost_chip()) {
    return hooks_.break_board(lost);
  }
  const TransportStats stats = transport_->stats();
  const auto stuck =
      std::ranges::find_if(devices_, [](const Device& device) TPU_REQUIRES(board_lock) {
        return device.first_launch() != nullptr;
      });
  stall_text_ =
      hooks_.tell_hang("deadlock", stuck == devices_.end() ? nullptr : stuck->first_launch(),
                       transport_->waits(), stats);
  if (completions_.find_missing()) {
    stalls_ = 0;
  } else if (!reboot_dead()) {
    const std::vector<int> hung = find_hung();
    if (!hung.empty() && !health_.broken()) {
      reboot(hung);
    } else if (any_open_drains() &&
               outlast_drains([this]() TPU_REQUIRES(board_lock) { return completions_.drain(); })) {
      stalls_ = 0;
    } else {
      abort_launches();
    }
  }
}

void Recovery::give_up() {
  std::string harts;
  for (const Device& device : devices_) {
    harts += device.ring.open() > 0 ? harts_.core_text(device) : std::string();
  }
  hooks_.break_board(std::make_shared<Error>(
      ErrorCode::kTimeout,
      fmt::format("the board does not answer: nothing is in flight and commands are open{}{}{}",
                  harts, stall_text_.empty() ? "" : "\n", stall_text_)));
}

}  // namespace tpu::driver
