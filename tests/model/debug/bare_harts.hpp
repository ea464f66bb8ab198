// Two harts with a memory each and no board around them, as debuggers see them.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "debug/debug_target.hpp"

namespace tpu::model {

class BareHarts : public DebugTarget {
 public:
  static constexpr uint32_t kBase = 0x1000'0000;
  static constexpr uint32_t kBytes = 0x1000;

  BareHarts() {
    for (uint32_t i = 0; i < memories_.size(); ++i) {
      memories_[i].resize(kBytes);
      harts_.push_back(std::make_unique<Hart>(i, HartTiming{1, 1, 2, 16}));
      harts_[i]->add_memory({kBase, kBytes, memories_[i].data(), true, true});
      harts_[i]->reset(kBase);
    }
  }
  uint32_t harts() const override { return static_cast<uint32_t>(harts_.size()); }
  Hart& hart(uint32_t core) override { return *harts_.at(core); }
  bool read(uint32_t core, uint32_t address, std::span<uint8_t> data) override {
    return hart(core).read_memory(address, data);
  }
  bool write(uint32_t core, uint32_t address, std::span<const uint8_t> data) override {
    return hart(core).write_memory(address, data);
  }
  bool read_register(uint32_t, uint32_t, uint32_t&) override { return false; }
  std::string time_text() const override { return "cycle 0"; }
  std::string hart_text(uint32_t core) const override { return "hart " + std::to_string(core); }
  std::string queues_text(uint32_t) const override { return {}; }
  std::string semaphores_text(uint32_t) const override { return {}; }
  std::string rings_text(uint32_t) const override { return "ring\n"; }
  std::string switch_waves(bool on) override { return on ? "begins" : "ends"; }

 private:
  std::array<std::vector<uint8_t>, 2> memories_;
  std::vector<std::unique_ptr<Hart>> harts_;
};

}  // namespace tpu::model
