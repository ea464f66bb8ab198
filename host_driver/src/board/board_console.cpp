// What the control harts say: text of the firmware, and traps with their place in its code.
#include <fmt/format.h>

#include "src/board/board_impl.hpp"
#include "src/texts/fault_text.hpp"
#include "src/texts/firmware.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {
namespace {

namespace core_page = spec::core_page;

}  // namespace

// When nobody will run the board any more.
void BoardImpl::take_rest_of_console() {
  try {
    if (transport_) {
      outbox_.add_console(transport_->take_console());
    }
  } catch (const std::exception&) {
    // The model broke, and was reported: its text went with it.
  }
}

// From the debug port, lines that begin with a line feed: what the core says of its fault of that
// cycle, and where its control hart stands.
std::string BoardImpl::core_text(const Device& device, uint64_t fault_cycle) {
  const TransportStats stats = transport_->stats();
  const auto at = static_cast<size_t>(device.id);
  std::string text;
  if (at < stats.faults.size() && stats.faults[at].cycle == fault_cycle &&
      !stats.faults[at].text.empty()) {
    text +=
        fmt::format("\nTPU:{} says: {}", device.id, spec::printable_text(stats.faults[at].text));
  }
  if (at < stats.harts.size()) {
    const HartPlace& hart = stats.harts[at];
    const std::vector<std::string> frames = firmware_trace(*firmware_names_, firmware_build_, hart);
    text += fmt::format("\nthe control hart of TPU:{} {} at {:#010x}{}{}", device.id,
                        hart.sleeping ? "sleeps" : "stands", hart.pc, frames.empty() ? "" : ", ",
                        fmt::join(frames, ", called by "));
  }
  return text;
}

// An image that traps before it tells its build is the one that was loaded.
std::string BoardImpl::trap_place(const Device& device, const tpu_fault_record_t& record) {
  const uint32_t build = registers_.read(device, core_page::kFwBuild);
  return firmware_place(*firmware_names_, build != 0 ? build : firmware_build_, record.hart_mepc);
}

// Of a core in state DEAD; empty when it left no record of a trap.
std::string BoardImpl::describe_trap(Device& device) {
  const tpu_fault_record_t record = read_fault(device);
  return record.code == TPU_FAULT_FW_TRAP ? trap_text(record, trap_place(device, record))
                                          : std::string();
}

// Tells of harts that died, once for each death: also of those that nobody waits for.
void BoardImpl::note_deaths() {
  for (Device& device : devices_) {
    const uint32_t state =
        registers_.read(device, core_page::kFwState) & core_page::kFwStateStateMask;
    if (state != core_page::kStateDead || device.told_trap == device.ring.boots() + 1) {
      continue;
    }
    device.told_trap = device.ring.boots() + 1;
    if (const std::string text = describe_trap(device); !text.empty()) {
      outbox_.tell(device.id, text);
    }
  }
}

}  // namespace tpu::driver
