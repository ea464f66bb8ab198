// The board as debuggers see it: address spaces of the control harts, and texts about what is
// around them. Kernel thread only; nothing here takes simulated time.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "chip/chip.hpp"
#include "debug/debug_target.hpp"
#include "tpu/board_report.hpp"

namespace tpu::model {

class BoardDebug : public DebugTarget {
 public:
  using Waits = std::function<std::vector<spec::UnitWait>()>;
  using SwitchWaves = std::function<std::string(bool on)>;
  // The chips outlive it, and there is at least one. Null: it is in another process, and its harts
  // are not asked for. `waits`: of all cores, now.
  BoardDebug(const std::vector<Chip*>& chips, Waits waits, SwitchWaves waves)
      : chips_(chips), waits_(std::move(waits)), waves_(std::move(waves)) {}

  uint32_t harts() const override;
  Hart& hart(uint32_t core) override { return mgmt(core).hart_unit().hart(); }
  bool read(uint32_t core, uint32_t address, std::span<uint8_t> data) override {
    return mgmt(core).debug_read(address, data);
  }
  bool write(uint32_t core, uint32_t address, std::span<const uint8_t> data) override {
    return mgmt(core).debug_write(address, data);
  }
  bool read_register(uint32_t core, uint32_t address, uint32_t& value) override {
    return mgmt(core).bus_register(address, false, value);
  }
  std::string time_text() const override;
  std::string hart_text(uint32_t core) const override;
  std::string queues_text(uint32_t core) const override;
  std::string semaphores_text(uint32_t core) const override;
  std::string rings_text(uint32_t core) const override;
  std::string switch_waves(bool on) override { return waves_(on); }

 private:
  size_t per_chip() const;
  Chip& chip_of(uint32_t core) const { return *chips_[core / per_chip()]; }
  size_t index_of(uint32_t core) const { return core % per_chip(); }
  Mgmt& mgmt(uint32_t core) const { return chip_of(core).mgmt(index_of(core)); }

  const std::vector<Chip*>& chips_;
  const Waits waits_;
  const SwitchWaves waves_;
};

}  // namespace tpu::model
