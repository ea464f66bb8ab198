// Slices of wall-clock time between two looks.
#include "src/pump/board_run.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "tpu/spec/chip_page_regs.hpp"

namespace tpu::driver {
namespace {

// While the board closes without what is in flight, launches are looked at this often.
constexpr std::chrono::nanoseconds kCancelLook = std::chrono::milliseconds(50);

// Of two slices, each of which may be none (0).
std::chrono::nanoseconds shorter(std::chrono::nanoseconds a, std::chrono::nanoseconds b) {
  return a.count() == 0 || (b.count() != 0 && b < a) ? b : a;
}

// A slice (0: none) that ends at the deadline; never 0 then.
std::chrono::nanoseconds sooner(std::chrono::nanoseconds slice, Deadline deadline,
                                std::chrono::steady_clock::time_point now) {
  if (!deadline) {
    return slice;
  }
  const std::chrono::nanoseconds left = std::max(*deadline - now, std::chrono::nanoseconds(1));
  return slice.count() == 0 ? left : std::min(slice, left);
}

}  // namespace

bool BoardRun::tells_death(std::span<const uint32_t> msi) {
  return std::any_of(msi.begin(), msi.end(), [](uint32_t vectors) {
    return (vectors >> spec::chip_page::kMsiChip & 1) != 0;
  });
}

RunOutcome BoardRun::run_once(bool to_end) {
  if (busy_until_) {
    return transport_->run_until(*busy_until_);
  }
  return to_end && !health_.cancelled() && feeds_.empty()
             ? transport_->run_handling([this](const PausedRun& run) TPU_REQUIRES(board_lock) {
                 return !tells_death(run.msi) && completions_.note_parts();
               })
             : transport_->run();
}

// Where a clock parks the board in between, nothing is looked at but that clock.
RunOutcome BoardRun::run_timed(Deadline deadline, bool to_end) {
  RunOutcome outcome;
  std::vector<ConsoleLine> console;
  bool late = false;
  do {
    const auto slice = shorter(limit_.slice(), reporter_.slice());
    const bool look = health_.cancelled() && (slice.count() == 0 || slice > kCancelLook);
    const auto start = std::chrono::steady_clock::now();
    if (!turn_.begin_run()) {
      turn_.hand_over(deadline);
      outcome.expired = true;
      break;  // what the caller waits for may have come
    }
    registers_.send();
    transport_->limit_run(sooner(look ? kCancelLook : slice, deadline, start));
    outcome = run_once(to_end);
    turn_.end_run();
    std::move(outcome.console.begin(), outcome.console.end(), std::back_inserter(console));
    const auto ran = std::chrono::steady_clock::now() - start;
    reporter_.report_after(ran, devices_, *transport_);
    limit_.spend(ran);
    if (health_.cancelled() && outcome.expired && !health_.broken()) {
      hooks_.abort_launches();  // a core forgets the abort of a launch that it has not bound yet
    }
    late = is_over(deadline);
  } while (outcome.expired && !health_.broken() && !late);
  outcome.console = std::move(console);
  return outcome;
}

void BoardRun::run_busy(uint64_t cycle) {
  busy_until_ = cycle;
  run();
  busy_until_.reset();
}

bool BoardRun::run(Deadline deadline, bool to_end) {
  try {
    RunOutcome outcome = run_timed(deadline, to_end);
    outbox_.add_console(outcome.console);
    if (tells_death(outcome.msi)) {
      harts_.note_deaths(devices_);
      hooks_.chip_events(outcome.msi);
    }
    return !outcome.quiescent;
  } catch (const std::exception& error) {
    turn_.end_run();
    hooks_.break_board(model_error(error));
    return false;
  }
}

}  // namespace tpu::driver
