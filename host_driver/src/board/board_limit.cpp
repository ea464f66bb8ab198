// Host time: the time limit of launches, of the host's own clock, which decides only whether a run
// ends with an error; lines about launches that take long, of the same clock; and what the board's
// numbers say that a host takes, of the board's clock.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "src/board/board_impl.hpp"
#include "src/residency/program.hpp"
#include "src/texts/fault_text.hpp"
#include "tpu/spec/core_page_regs.hpp"

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

std::string place_text(const ProgramPlace& place, const exe::ExecutableT& exe) {
  std::string text = fmt::format("step {}, sequencer at word {}", place.step, place.pc);
  if (place.op_id < exe.ops.size()) {
    text += fmt::format(", op {}", exe.ops[place.op_id]->name);
  }
  return text;
}

}  // namespace

// Runs the board to its next interrupt, or until the deadline of a caller who does not wait longer.
// Where the clock parks it in between, nothing is looked at but the limit: what the driver does
// next would depend on host time.
RunOutcome BoardImpl::run_timed(Deadline deadline, bool to_end) {
  const auto run = [&] {
    if (host_busy_until_) {
      return transport_->run_until(*host_busy_until_);
    }
    return to_end && !health_.cancelled() && feeds_.empty()
               ? transport_->run_handling([this](std::span<const uint32_t> msi) {
                   return !tells_death(msi) && completions_.note_parts();
                 })
               : transport_->run();
  };
  RunOutcome outcome;
  std::vector<ConsoleLine> console;
  bool late = false;
  do {
    const auto slice = shorter(launch_clock_.slice(), reporter_.slice());
    const bool look = health_.cancelled() && (slice.count() == 0 || slice > kCancelLook);
    const auto start = std::chrono::steady_clock::now();
    if (!turn_.begin_run()) {
      turn_.hand_over(deadline);
      outcome.expired = true;
      break;  // what the caller waits for may have come
    }
    registers_.send();
    transport_->limit_run(sooner(look ? kCancelLook : slice, deadline, start));
    outcome = run();
    turn_.end_run();
    std::move(outcome.console.begin(), outcome.console.end(), std::back_inserter(console));
    const auto ran = std::chrono::steady_clock::now() - start;
    reporter_.report_after(ran, devices_, *transport_);
    if (launch_clock_.spend(ran)) {
      check_time_limit();
    }
    if (health_.cancelled() && outcome.expired && !health_.broken()) {
      recovery_.abort_launches();  // a core forgets the abort of a launch that it has not bound yet
    }
    late = deadline && std::chrono::steady_clock::now() >= *deadline;
  } while (outcome.expired && !health_.broken() && !late);
  outcome.console = std::move(console);
  return outcome;
}

// The host is busy for that long before its call takes effect, and the board goes on meanwhile. It
// stops at its interrupts as ever. While a host call is answered no board time passes: the calls of
// who answers cost none, those of others come behind the answer. May give up the lock for that.
void BoardImpl::spend_host_time(uint64_t cycles) {
  if (cycles == 0 || calls_.answers_here()) {
    return;
  }
  while (calls_.await_answer(std::nullopt)) {
  }
  health_.check_usable();
  const Turn::Kept whole(turn_);
  host_busy_until_ = transport_->now() + cycles;
  while (!health_.broken() && transport_->now() < *host_busy_until_) {
    run_board();
    completions_.drain();
    feeds_.send();
  }
  host_busy_until_.reset();
  health_.check_unbroken();
}

// The host makes so many bytes ready for an upload.
void BoardImpl::prepare_input(uint64_t bytes) {
  const uint64_t cycles = spec::host_input_cycles(params_, bytes);
  if (cycles == 0) {
    return;
  }
  transport_->host_prepares(true);
  try {
    spend_host_time(cycles);
  } catch (...) {
    if (transport_) {  // else the board was closed meanwhile
      transport_->host_prepares(false);
    }
    throw;
  }
  transport_->host_prepares(false);
}

// At each tick of the clock. The oldest launch is taken off: younger ones may wait for it.
void BoardImpl::check_time_limit() {
  const std::vector<ProgramPlace> places = transport_->stats().places;
  const Device* late = nullptr;
  for (const Device& device : devices_) {
    const auto i = static_cast<size_t>(device.id);
    const Operation* op = device.first_launch();
    if (op != nullptr && devices_.waits_its_turn(*op)) {
      op = nullptr;
    }
    // A transport without a debug port does not tell steps: then all of a launch have their time.
    const bool seen = i < places.size();
    if (!launch_clock_.look(i, op == nullptr ? 0 : op->launch_id, seen ? places[i].steps : 0,
                            seen || op == nullptr ? 1 : op->steps)) {
      continue;
    }
    const Operation* oldest = late == nullptr ? nullptr : late->first_launch();
    const bool runs = i < places.size() && places[i].running;
    if (oldest == nullptr || op->number < oldest->number ||
        (op->number == oldest->number && runs && !places[static_cast<size_t>(late->id)].running)) {
      late = &device;
    }
  }
  if (late != nullptr) {
    end_by_time_limit(*late, *late->first_launch());
  }
}

void BoardImpl::end_by_time_limit(const Device& device, Operation& op) {
  if (op.verdict) {
    break_board(std::make_shared<Error>(
        ErrorCode::kTimeout, op.verdict->message() + "\nIt did not end when it was aborted",
        op.verdict->place()));
    return;
  }
  const TransportStats stats = transport_->stats();
  const exe::ExecutableT& exe = op.program->exe;
  ErrorPlace where{.device = device.id, .op = {}, .source = {}};
  std::string text = fmt::format(
      "{} (id {}) completed no step in {} s of wall-clock time, its limit "
      "(OpenOptions::time_limit; 0: no limit)",
      op.what, op.launch_id, launch_clock_.seconds());
  if (const auto at = static_cast<size_t>(device.id);
      at < stats.places.size() && stats.places[at].running) {
    const ProgramPlace& place = stats.places[at];
    text += ": " + place_text(place, exe);
    where = op_place(exe, place.op_id, device.id);
  }
  text += harts_.core_text(device);
  const std::string waits = tell_hang("time limit", &op, stats.waits, stats);
  text += waits.empty() ? std::string() : "\nwhat waits for what:\n" + waits;
  op.verdict = std::make_shared<Error>(ErrorCode::kTimeout, text, where);
  registers_.write(device, spec::core_page::kAbort, op.launch_id);
}

}  // namespace tpu::driver
