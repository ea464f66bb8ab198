// Core page: the registers that host and hart share, seen from both sides. The host's writes become
// interrupts and control actions of the owner; the hart's view is block sysctl. Specification:
// spec/regs/core_page.toml, sysctl.toml.
#pragma once

#include <cstdint>
#include <span>

#include "kernel/register_block.hpp"
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
  virtual void host_request() = 0;  // QUEUE_EN, RESUME, ABORT or CALL_* was written
  virtual void host_abort(uint32_t tag) = 0;
  virtual void send_msi(uint32_t vector) = 0;
};

// The hart's side (block sysctl) holds the registers; the host's side shows those of them that both
// have, by its own table of accesses.
class CorePage : public RegisterBlock {
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

  CorePage(const Identity& identity, CorePageOwner& owner, const RegisterProbe& probe);

  // Host side. Undefined offsets read all ones, writes to them and to the device's registers are
  // dropped.
  uint32_t host_read(uint32_t offset);
  void host_write(uint32_t offset, uint32_t value) { host_.write(offset, value); }

  // Hardware side; `page_reg` by offsets of core_page.
  void reset();
  void visit_state(spec::Archive& archive);
  uint32_t page_reg(uint32_t offset) const { return host_.reg(offset); }
  void set_page_reg(uint32_t offset, uint32_t value) { host_.set_reg(offset, value); }
  // FAULT_RECORD, whole.
  void set_record(std::span<const uint32_t> words);
  uint64_t hbm_window() const;

 private:
  class HostSide : public RegisterBlock {
   public:
    explicit HostSide(CorePage& page);
    using RegisterBlock::reg;
    using RegisterBlock::reset_registers;
    using RegisterBlock::set_reg;
    using RegisterBlock::visit_registers;

   private:
    static RegisterMap registers();
    void stored(uint32_t offset, uint32_t value) override { page_.stored(offset, value); }
    bool before_control(uint32_t value);
    void control(uint32_t value);
    void doorbell() { page_.owner_.doorbell(); }
    void request() { page_.owner_.host_request(); }
    void abort(uint32_t tag);
    CorePage& page_;
  };

  static constexpr uint32_t kShared = 0x80;  // bytes of the page that are told to probes

  static RegisterMap registers();
  void stored(uint32_t offset, uint32_t value) override;
  void send_msi(uint32_t vector) { owner_.send_msi(vector); }

  CorePageOwner& owner_;
  const RegisterProbe probe_;
  HostSide host_;
};

}  // namespace tpu::model
