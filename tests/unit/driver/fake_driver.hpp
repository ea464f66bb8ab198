// All owners of the driver's state around fake cores, up to recovery.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "image/firmware_image.hpp"
#include "src/recovery/recovery.hpp"
#include "tests/unit/driver/fake_cores.hpp"
#include "tpu/spec/board_params.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver::test {

namespace core_page = spec::core_page;

// Cores that resume at once, and fault records that a test sets.
class FaultWire : public SilentWire {
 public:
  uint32_t read32(int, int, uint64_t offset) override {
    const uint64_t place = offset - core_page::kBase;
    const auto core = static_cast<size_t>(place / core_page::kStride);
    const uint64_t reg = place % core_page::kStride;
    if (reg == core_page::kEpoch) {
      return epoch.at(core);
    }
    if (reg == core_page::kCplTail) {
      return completions.at(core);
    }
    if (reg == core_page::kHeartbeat) {
      return beats.at(core);
    }
    const uint64_t word = (reg - core_page::kFaultRecord) / core_page::kFaultRecordStride;
    if (reg >= core_page::kFaultRecord && word < sizeof(tpu_fault_record_t) / 4) {
      uint32_t value = 0;
      std::memcpy(&value, reinterpret_cast<const std::byte*>(&record) + 4 * word, 4);
      return value;
    }
    return 0;
  }
  void write32(int chip, int bar, uint64_t offset, uint32_t value) override {
    SilentWire::write32(chip, bar, offset, value);
    const uint64_t place = offset - core_page::kBase;
    if (place % core_page::kStride == core_page::kResume) {
      epoch.at(static_cast<size_t>(place / core_page::kStride)) = value;
    } else if (place % core_page::kStride == core_page::kCmdTail) {
      ++beats.at(static_cast<size_t>(place / core_page::kStride));  // the hart looks
    }
  }
  // Values that were written to a register of a core since the last look.
  std::vector<uint32_t> written(int core, uint64_t reg) {
    std::vector<uint32_t> values;
    for (const auto& [offset, value] : writes) {
      if (offset == core_page::kBase + static_cast<uint64_t>(core) * core_page::kStride + reg) {
        values.push_back(value);
      }
    }
    writes.clear();
    return values;
  }

  std::vector<uint32_t> epoch = {0, 0};
  std::vector<uint32_t> completions = {0, 0};
  std::vector<uint32_t> beats = {0, 0};
  tpu_fault_record_t record{};
};

struct FakeDriver : FakeBoard {
  FakeDriver() {
    auto made = std::make_unique<FaultWire>();
    wire = made.get();
    transport = std::move(made);
    cores.registers.connect(wire);
    harts.set_firmware(std::make_shared<firmware::Image>(), 0);
    loader.set_board("fake", 1, {});
  }

  spec::BoardParams params{};
  std::unique_ptr<Transport> transport;
  FaultWire* wire = nullptr;
  ErrorPtr broken;
  ErrorPtr lost_chip;
  std::vector<std::string> hangs;
  std::function<bool()> run = [] { return false; };
  std::function<void(uint64_t)> run_until = [](uint64_t) {};
  Transfers transfers{memory, operations, order, handles, turn};
  Feeds feeds{cores.devices, cores.registers, operations, memory, handles, health, outbox, news};
  Loader loader{cores.devices, operations, order, memory, transfers, health, [this] { pump(); }};
  Launcher launcher{operations,
                    order,
                    memory,
                    transfers,
                    feeds,
                    loader,
                    handles,
                    health,
                    [](uint32_t, const std::shared_ptr<const exe::ExecutableT>&, uint64_t) {}};
  HostCallServer calls{cores.devices, cores.registers, memory, health, outbox, turn, news};
  const std::function<void(const ErrorPtr&)> break_board = [this](const ErrorPtr& error) {
    broken = error;
    health.break_by(error);
  };
  Completions completions{cores.devices, cores.registers, operations, calls, health, break_board};
  Harts harts{transport, cores.registers, outbox};
  Booter booter{transport, cores.devices, cores.registers, harts, outbox};
  LaunchRecords records{transport};
  Recovery recovery{params,
                    transport,
                    cores.devices,
                    cores.registers,
                    operations,
                    completions,
                    feeds,
                    loader,
                    launcher,
                    records,
                    harts,
                    booter,
                    health,
                    outbox,
                    turn,
                    {.run = [this] { return run(); },
                     .run_until = [this](uint64_t cycle) { run_until(cycle); },
                     .break_board = break_board,
                     .tell_hang =
                         [this](const char* kind, const Operation*, const std::vector<UnitWait>&,
                                const TransportStats&) {
                           hangs.emplace_back(kind);
                           return std::string("a waits for b\n");
                         },
                     .lost_chip = [this] { return lost_chip; }}};
};

}  // namespace tpu::driver::test
