// The boot of a core, state by state (spec/regs/core_page.toml).
#include "src/boot/booter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <string>

#include "file/crc32c.hpp"
#include "tpu/spec/chip_page_regs.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {
namespace {

namespace chip_page = spec::chip_page;
namespace core_page = spec::core_page;

constexpr size_t kLoadBlockBytes = 4096;
// Parks at other interrupts while waiting for a state; each core sends a few during boot.
constexpr int kMaxBootParks = 10000;

constexpr std::array<const char*, 10> kStateNames = {
    "RESET", "ROM", "BAD_IMAGE", "HANDSHAKE", "ABI_MISMATCH",
    "READY", "RUN", "DRAIN",     "HELD",      "DEAD"};

std::string state_text(uint32_t state) {
  const uint32_t code = state & core_page::kFwStateStateMask;
  return fmt::format("{} (FW_STATE {:#010x})",
                     code < kStateNames.size() ? kStateNames[code] : "unknown", state);
}

Error internal(const std::string& text, int device = -1) {
  return Error(ErrorCode::kInternal, text, {.device = device, .op = {}, .source = {}});
}

// Board, firmware and driver are each good, but do not belong together.
Error mismatch(const std::string& text, int device = -1) {
  return Error(ErrorCode::kFailedPrecondition, text, {.device = device, .op = {}, .source = {}});
}

}  // namespace

void Booter::set_firmware(std::vector<std::byte> bytes, uint32_t entry) {
  firmware_ = std::move(bytes);
  entry_ = entry;
}

void Booter::boot_all() {
  std::vector<int> all;
  for (const Device& device : devices_) {
    all.push_back(device.id);
  }
  boot(all, false);
}

void Booter::check_chips(int chips, uint64_t board_hash) {
  for (int chip = 0; chip < chips; ++chip) {
    const auto read = [&](uint64_t offset)
                          TPU_REQUIRES(board_lock) { return registers_.read_chip(chip, offset); };
    if (read(chip_page::kMagic) != chip_page::kMagicTpub) {
      throw Error(ErrorCode::kUnavailable,
                  fmt::format("no chip {} behind its PCIe endpoint", chip));
    }
    const uint32_t abi = read(chip_page::kHwAbi);
    if ((abi >> 16) != chip_page::kHwAbiMajor || (abi & 0xFFFF) < chip_page::kHwAbiMinor) {
      throw mismatch(
          fmt::format("chip {} has register map {}.{}, but this driver needs version {}.{}", chip,
                      abi >> 16, abi & 0xFFFF, chip_page::kHwAbiMajor, chip_page::kHwAbiMinor));
    }
    const uint64_t hash = read(chip_page::kBoardHashLo) | uint64_t{read(chip_page::kBoardHashHi)}
                                                              << 32;
    if (hash != board_hash) {
      throw mismatch(fmt::format("chip {} has board hash {:016x}, but the board file has {:016x}",
                                 chip, hash, board_hash));
    }
  }
}

void Booter::load_firmware(const std::vector<int>& ids) {
  for (const int id : ids) {
    registers_.write(devices_[id], core_page::kCoreCtrl, core_page::kCoreCtrlCoreResetMask);
  }
  const std::span<const std::byte> image(firmware_);
  for (const int id : ids) {
    const Device& device = devices_[id];
    const uint64_t window = static_cast<uint64_t>(device.core) * core_page::kLoadStride;
    for (size_t at = 0; at < image.size(); at += kLoadBlockBytes) {
      transport_->write_block(device.chip, 2, window + at,
                              image.subspan(at, std::min(kLoadBlockBytes, image.size() - at)));
    }
    registers_.write(device, core_page::kBootEntry, entry_);
    registers_.write(device, core_page::kBootLen, static_cast<uint32_t>(image.size()));
    registers_.write(device, core_page::kBootCrc, spec::crc32c(image));
    registers_.write(device, core_page::kCoreCtrl, core_page::kCoreCtrlHartRunMask);
  }
}

// Lets time pass until all cores are in `wanted`; returns those that ended in BAD_IMAGE instead.
std::vector<int> Booter::await_state(const std::vector<int>& ids, uint32_t wanted) {
  std::vector<int> waiting = ids;
  std::vector<int> bad;
  for (int parks = 0; !waiting.empty(); ++parks) {
    RunOutcome outcome = transport_->run();
    outbox_.add_console(outcome.console);
    std::vector<int> still;
    for (const int id : waiting) {
      const uint32_t word = registers_.read(devices_[id], core_page::kFwState);
      const uint32_t state = word & core_page::kFwStateStateMask;
      if (state == wanted) {
        continue;
      }
      if (state == core_page::kStateBadImage) {
        bad.push_back(id);
        continue;
      }
      if (state == core_page::kStateAbiMismatch) {
        throw mismatch(
            "driver and firmware use different versions of the ring formats; build both again", id);
      }
      if (state == core_page::kStateDead || outcome.quiescent || parks > kMaxBootParks) {
        Device& device = devices_[id];
        const std::string trap =
            state == core_page::kStateDead ? harts_.describe_trap(device) : std::string();
        throw internal(
            fmt::format("the control hart does not boot: its last reported state is {}{}{}{}",
                        state_text(word), trap.empty() ? "" : ": ", trap, harts_.core_text(device)),
            id);
      }
      still.push_back(id);
    }
    waiting = std::move(still);
  }
  return bad;
}

void Booter::set_up_rings(Device& device) {
  device.ring.clear();
  device.held = false;
  const CommandRing::Memory& commands = device.ring.commands();
  const CommandRing::Memory& completions = device.ring.completions();
  const auto low = [](uint64_t v) { return static_cast<uint32_t>(v); };
  const auto high = [](uint64_t v) { return static_cast<uint32_t>(v >> 32); };
  registers_.write(device, core_page::kHostAbi, TPU_RING_ABI);
  registers_.write(device, core_page::kCmdBaseLo, low(commands.iova));
  registers_.write(device, core_page::kCmdBaseHi, high(commands.iova));
  registers_.write(device, core_page::kCmdLog2, TPU_CMD_RING_LOG2);
  registers_.write(device, core_page::kCplBaseLo, low(completions.iova));
  registers_.write(device, core_page::kCplBaseHi, high(completions.iova));
  registers_.write(device, core_page::kCplLog2, TPU_CPL_RING_LOG2);
  registers_.write(device, core_page::kQueueEn, 1);
}

void Booter::check_versions(const Device& device) {
  const uint32_t abi = registers_.read(device, core_page::kFwAbi);
  if ((abi >> 16) != (TPU_RING_ABI >> 16)) {
    throw mismatch(
        fmt::format("the firmware uses ring formats {}.{}, this driver {}.{}; build both again",
                    abi >> 16, abi & 0xFFFF, TPU_RING_ABI >> 16, TPU_RING_ABI & 0xFFFF),
        device.id);
  }
  const uint32_t build = registers_.read(device, core_page::kFwBuild);
  if (harts_.build() != 0 && build != harts_.build()) {
    throw internal(
        fmt::format("the control hart runs firmware build {:08x}, expected the loaded build {:08x}",
                    build, harts_.build()),
        device.id);
  }
}

void Booter::boot(const std::vector<int>& ids, bool retried) {
  transport_->limit_run({});  // the last slice of the pump does not cut the boot short
  load_firmware(ids);
  const std::vector<int> bad = await_state(ids, core_page::kStateHandshake);
  std::vector<int> booted;
  std::set_difference(ids.begin(), ids.end(), bad.begin(), bad.end(), std::back_inserter(booted));
  for (const int id : booted) {
    Device& device = devices_[id];
    check_versions(device);
    set_up_rings(device);
  }
  await_state(booted, core_page::kStateReady);
  for (const int id : booted) {
    Device& device = devices_[id];
    device.ring.begin_epoch(registers_.read(device, core_page::kEpoch));
  }
  if (!bad.empty()) {
    if (retried) {
      throw internal("firmware image corrupt: its CRC is wrong in the core's memory", bad.front());
    }
    boot(bad, true);
  }
}

}  // namespace tpu::driver
