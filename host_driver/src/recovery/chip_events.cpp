// The chip page of a chip; layout: spec/regs/chip_page.toml.
#include "src/recovery/chip_events.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "board/board_loader.hpp"
#include "tpu/spec/chip_page_regs.hpp"

namespace tpu::driver {
namespace {

namespace chip_page = spec::chip_page;

constexpr uint32_t kGone = 0xFFFFFFFF;
constexpr int kMagicReads = 3;

}  // namespace

void ChipEvents::take(std::span<const uint32_t> msi) {
  for (size_t i = 0; i < msi.size(); ++i) {
    if ((msi[i] >> chip_page::kMsiChip & 1) == 0) {
      continue;
    }
    const auto chip = static_cast<int>(i);
    const uint32_t events = read(chip, chip_page::kEvents);
    if (events == 0 || events == kGone) {
      continue;
    }
    transport_->write32(chip, 0, chip_page::kEvents, events);
    if ((events & chip_page::kEventsEccUncorrectedMask) != 0) {
      read_log(chip);
    }
  }
}

// What the log has lost is retired when it is read the next time.
void ChipEvents::read_log(int chip) {
  const uint32_t written = read(chip, chip_page::kEccLogged);
  uint32_t& next = logged_[chip];
  if (written - next > chip_page::kEccLogEntries) {
    next = written - chip_page::kEccLogEntries;
  }
  for (; next != written; ++next) {
    const uint64_t at = uint64_t{next % chip_page::kEccLogEntries} * chip_page::kEccLogLoStride;
    const uint32_t low = read(chip, chip_page::kEccLogLo + at);
    const uint32_t high = read(chip, chip_page::kEccLogHi + at);
    if ((high & chip_page::kEccLogHiUncorrectedMask) != 0) {
      retire(chip, low, high);
    }
  }
}

void ChipEvents::retire(int chip, uint32_t low, uint32_t high) {
  const auto core =
      static_cast<int>((high & chip_page::kEccLogHiCoreMask) >> chip_page::kEccLogHiCoreShift);
  const uint64_t address = uint64_t{high & chip_page::kEccLogHiAddressMask} << 32 | low;
  const auto device = std::ranges::find_if(
      devices_, [&](const Device& each) { return each.chip == chip && each.core == core; });
  std::string label;
  if (device != devices_.end() && device->memory->retire(address, label)) {
    outbox_.tell(
        device->id,
        fmt::format("HBM at {:#x} cannot be corrected{}; its page of {} bytes is used no "
                    "more once it is free",
                    address, label.empty() ? "" : ", it holds " + label, RangeAllocator::kPage));
  }
}

ErrorPtr ChipEvents::lost_chip() {
  std::set<int> chips;
  for (const Device& device : devices_) {
    if (device.ring.open() > 0) {
      chips.insert(device.chip);
    }
  }
  for (const int chip : chips) {
    int reads = 0;
    while (reads < kMagicReads && read(chip, chip_page::kMagic) == kGone) {
      ++reads;
    }
    if (reads == kMagicReads) {
      return std::make_shared<Error>(
          ErrorCode::kUnavailable,
          fmt::format(
              "chip {}{} has gone: its PCIe endpoint reads all ones, {} times in a row. What "
              "was in flight is lost; open the board again",
              chip,
              spec::board_count(params_) == 1
                  ? ""
                  : fmt::format(" of board {}", spec::board_of_chip(params_, chip)),
              kMagicReads));
    }
  }
  return nullptr;
}

}  // namespace tpu::driver
