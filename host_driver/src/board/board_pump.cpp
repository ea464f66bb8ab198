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
      harts_.note_deaths(devices_);
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
  bool progress = completions_.drain();
  progress = calls_.serve() || progress;
  feeds_.send();
  starves_ = false;
  if (!progress && !health_.broken()) {
    completions_.take_noted();
    const bool moving = run_board(deadline, how.to_end);
    progress = completions_.drain() || completions_.take_noted();
    if (progress) {
      calls_.serve();
      recovery_.note_progress();
    } else if (!moving && !health_.broken() && devices_.in_flight() &&
               !await_batch(deadline, how.sleeps)) {
      recovery_.stalled();
    }
  }
  recovery_.recover();
  feeds_.send();
  return progress;
}

// A launch is over, and its event not set yet.
void BoardImpl::end_launch(Operation& launch, const ErrorPtr& error) {
  if (launch.feed) {
    feeds_.end(*launch.feed, error);
  }
  if (launch.on_board) {
    records_.end(launch);
  }
  launcher_.forget_id(launch);
}

}  // namespace tpu::driver
