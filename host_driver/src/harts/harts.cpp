// Fault records by their registers, all else by the debug port.
#include "src/harts/harts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>

#include "src/texts/fault_text.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {
namespace {

namespace core_page = spec::core_page;

}  // namespace

void Harts::set_firmware(std::shared_ptr<const firmware::Image> names, uint32_t build) {
  names_ = std::move(names);
  build_ = build;
}

bool Harts::dead(const Device& device) {
  const uint32_t state =
      registers_.read(device, core_page::kFwState) & core_page::kFwStateStateMask;
  return state == core_page::kStateDead;
}

tpu_fault_record_t Harts::read_fault(const Device& device) {
  std::array<uint32_t, sizeof(tpu_fault_record_t) / 4> words{};
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = registers_.read(device, core_page::kFaultRecord + i * core_page::kFaultRecordStride);
  }
  tpu_fault_record_t record;
  std::memcpy(&record, words.data(), sizeof(record));
  return record;
}

std::string Harts::core_text(const Device& device, uint64_t fault_cycle) {
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
    const std::vector<std::string> frames = firmware_trace(*names_, build_, hart);
    text += fmt::format("\nthe control hart of TPU:{} {} at {:#010x}{}{}", device.id,
                        hart.sleeping ? "sleeps" : "is", hart.pc, frames.empty() ? "" : ", ",
                        fmt::join(frames, ", called by "));
  }
  return text;
}

std::string Harts::trap_place(const Device& device, const tpu_fault_record_t& record) {
  const uint32_t build = registers_.read(device, core_page::kFwBuild);
  return firmware_place(*names_, build != 0 ? build : build_, record.hart_mepc);
}

std::string Harts::describe_trap(const Device& device) {
  const tpu_fault_record_t record = read_fault(device);
  return record.code == TPU_FAULT_FW_TRAP ? trap_text(record, trap_place(device, record))
                                          : std::string();
}

void Harts::note_deaths(Devices& devices) {
  for (Device& device : devices) {
    if (!dead(device) || device.told_trap == device.ring.boots() + 1) {
      continue;
    }
    device.told_trap = device.ring.boots() + 1;
    if (const std::string text = describe_trap(device); !text.empty()) {
      outbox_.tell(device.id, text);
    }
  }
}

}  // namespace tpu::driver
