// Core page: the registers that host and hart share, seen from both sides. The host's writes become
// interrupts and control actions of the owner; the hart's view is block sysctl. Law:
// spec/regs/core_page.toml, sysctl.toml.
#pragma once

#include <array>
#include <cstdint>

#include "mgmt/reg_block.hpp"
#include "probe/register_probe.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::model {

// What the page asks of the control processor around it.
class CorePageOwner {
 public:
  virtual ~CorePageOwner() = default;
  virtual void core_reset() = 0;
  virtual void hart_run(bool run) = 0;
  virtual void debug_halt(bool halt) = 0;
  virtual void doorbell() = 0;
  virtual void host_request() = 0;  // QUEUE_EN, RESUME, ABORT or CALL_REQUEST was written
  virtual void host_abort(uint32_t tag) = 0;
  virtual void send_msi(uint32_t vector) = 0;
};

class CorePage : public RegBlock {
 public:
  struct Identity {
    uint32_t core;
    uint32_t chip;
    uint32_t local;
    uint32_t cores;
    uint32_t clock_khz;
    uint64_t hbm_bytes;
    uint64_t board_hash;
    uint32_t watchdog_kcycles;
  };

  CorePage(const Identity& identity, CorePageOwner& owner, const RegisterProbe& probe)
      : identity_(identity), owner_(owner), probe_(probe) {}

  // Host side. Undefined offsets read all ones, writes to them and to the device's registers are
  // dropped.
  uint32_t host_read(uint32_t offset) const;
  void host_write(uint32_t offset, uint32_t value);

  // Hart side.
  bool read(uint32_t offset, uint32_t& value) override;
  bool write(uint32_t offset, uint32_t value) override;
  bool untimed(uint32_t offset, bool write) const override;

  // Hardware side.
  void reset();
  void visit_state(spec::Archive& archive) { archive(regs_, record_, hbm_window_); }
  uint32_t reg(uint32_t offset) const { return regs_[offset / 4]; }
  void set_reg(uint32_t offset, uint32_t value) {
    regs_[offset / 4] = value;
    probe_.tell(offset, value);
  }
  uint32_t& record_word(uint32_t index) { return record_[index]; }
  uint64_t hbm_window() const { return hbm_window_; }

 private:
  static constexpr uint32_t kShared = 0x80;  // bytes that host and hart see at the same offsets
  static constexpr uint32_t kRecordWords = spec::core_page::kFaultRecordCount;

  const Identity identity_;
  CorePageOwner& owner_;
  const RegisterProbe probe_;
  std::array<uint32_t, kShared / 4> regs_{};
  std::array<uint32_t, kRecordWords> record_{};
  uint64_t hbm_window_ = 0;
};

}  // namespace tpu::model
