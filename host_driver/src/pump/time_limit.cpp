// Which launch is late, and what is said of it.
#include "src/pump/time_limit.hpp"

#include <fmt/format.h>

#include "src/residency/program.hpp"
#include "src/texts/fault_text.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {
namespace {

std::string place_text(const ProgramPlace& place, const exe::ExecutableT& exe) {
  std::string text = fmt::format("step {}, sequencer at word {}", place.step, place.pc);
  if (place.op_id < exe.ops.size()) {
    text += fmt::format(", op {}", exe.ops[place.op_id]->name);
  }
  return text;
}

}  // namespace

void TimeLimit::spend(LaunchClock::Time time) {
  if (clock_.spend(time)) {
    check();
  }
}

// At each tick of the clock. The oldest launch is taken off: younger ones may wait for it.
void TimeLimit::check() {
  const std::vector<ProgramPlace> places = transport_->stats().places;
  const Device* late = nullptr;
  LaunchesInTurn in_turn(devices_);
  for (const Device& device : devices_) {
    const auto i = static_cast<size_t>(device.id);
    const Operation* op = in_turn.at(device);
    // A transport without a debug port does not tell steps: then all of a launch have their time.
    const bool seen = i < places.size();
    if (!clock_.look(i, op == nullptr ? 0 : op->launch_id, seen ? places[i].steps : 0,
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
    end(*late, *late->first_launch());
  }
}

void TimeLimit::end(const Device& device, Operation& op) {
  if (op.verdict) {
    break_board_(std::make_shared<Error>(
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
      op.what, op.launch_id, clock_.seconds());
  if (const auto at = static_cast<size_t>(device.id);
      at < stats.places.size() && stats.places[at].running) {
    const ProgramPlace& place = stats.places[at];
    text += ": " + place_text(place, exe);
    where = op_place(exe, place.op_id, device.id);
  }
  text += harts_.core_text(device);
  const std::string waits = tell_hang_("time limit", &op, transport_->waits(), stats);
  text += waits.empty() ? std::string() : "\nwhat waits for what:\n" + waits;
  op.verdict = std::make_shared<Error>(ErrorCode::kTimeout, text, where);
  registers_.write(device, spec::core_page::kAbort, op.launch_id);
}

}  // namespace tpu::driver
