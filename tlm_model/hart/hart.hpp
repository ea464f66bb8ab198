// Control hart: instruction-set simulator of one RV32IMC + Zicsr core with machine mode only.
// Pure C++ without SystemC: a wrapper runs it in slices, lets simulated time pass by the cycles
// that a slice took, and performs device accesses. Tightly coupled memories are host arrays handed
// in by pointer; every other address of a device window stops the hart before the instruction. Not
// modelled: pipeline hazards, user mode, physical memory protection, performance event counters.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "file/archive.hpp"
#include "hart/hart_csrs.hpp"
#include "hart/hart_insn.hpp"
#include "hart/hart_map.hpp"
#include "hart/hart_watches.hpp"

namespace tpu::model {

enum class HartStop : uint8_t {
  kBudget,  // the cycle budget is used up
  kMmio,    // stands before a device access: see pending_mmio()
  kWfi,     // sleeps until an enabled interrupt is pending
  kTrap,    // an exception inside an exception handler: the hart is dead until reset()
  kBreak,   // stands before an instruction with a breakpoint; the next run() executes it
  kWatch,   // stands behind an access to watched bytes: see watch_hit()
};

struct HartRun {
  uint64_t cycles;  // hart cycles that passed in this run, stopped instruction not included
  HartStop reason;
};

// One device access of the stopped instruction. Naturally aligned.
struct MmioAccess {
  uint32_t addr;
  uint32_t data;  // value to store; for loads 0
  uint8_t size_bytes;
  bool write;
};

class Hart {
 public:
  Hart(uint32_t hart_id, const HartTiming& timing);

  // Set-up, before the first run. Regions must not overlap; wrong sizes throw
  // std::invalid_argument.
  void add_memory(const HartMemory& memory) { map_.add_memory(memory); }
  void add_mmio_window(uint32_t base, uint32_t size_bytes) { map_.add_window(base, size_bytes); }
  // Once, behind the memories: what runs often becomes code there, in the same cycles. It outlives
  // the hart.
  void use_code(HartCode& code) { map_.use_code(code); }

  // Registers to their reset state, `pc` to `reset_pc`; memories, breakpoints and counters stay.
  void reset(uint32_t reset_pc);

  // Runs until at least `budget_cycles` hart cycles passed (one instruction may overshoot) or
  // another stop. Interrupts are taken at entry, after CSR writes and after `mret`.
  HartRun run(uint64_t budget_cycles);

  // Device access protocol: after kMmio the wrapper reads pending_mmio(), performs it, and calls
  // exactly one of complete_mmio() (`rdata`: low-aligned load value) or fail_mmio() (access fault).
  // Watched accesses are told by watch_hit() behind complete_mmio(). A debugger that moves the pc
  // takes the access back: mmio_pending().
  const MmioAccess& pending_mmio() const { return mmio_; }
  bool mmio_pending() const { return mmio_pending_; }
  void complete_mmio(uint32_t rdata);
  void fail_mmio();

  // Level of an interrupt line; looked at when the next run() begins.
  void set_irq(HartIrq irq, bool level) { csrs_.set_irq(irq, level); }

  // False: no interrupt is taken before software enables them.
  bool takes_interrupts() const { return csrs_.interrupts_on(); }

  // True while asleep with no enabled interrupt pending: run() would return kWfi at once.
  bool sleeping() const { return waiting_ && !csrs_.pending(); }
  bool dead() const { return dead_; }

  // Somebody else (DMA, load window) wrote memory: decoded instructions of the range are dropped.
  void memory_changed(uint32_t addr, uint32_t size_bytes) { map_.changed(addr, size_bytes); }

  // Time that passed outside run(), so that `mcycle` follows the clock.
  void advance_cycles(uint64_t cycles) { cycles_ += cycles; }

  // Debug port. Register 0 is the constant zero. CSR reads of unknown numbers return 0.
  uint32_t reg(unsigned index) const { return regs_.at(index); }
  void set_reg(unsigned index, uint32_t value);
  uint32_t pc() const { return pc_; }
  void set_pc(uint32_t pc);
  uint32_t csr(uint32_t number) const {
    uint32_t value = 0;
    csrs_.read(number, {cycles_, instret_}, value);
    return value;
  }
  // As a write by software.
  void set_csr(uint32_t number, uint32_t value) { csrs_.write(number, {cycles_, instret_}, value); }
  uint64_t cycles() const { return cycles_; }
  uint64_t instret() const { return instret_; }
  // Its memories are their owner's, who tells of them by memory_changed().
  void visit_state(spec::Archive& archive) {
    archive(regs_, pc_, cycles_, instret_, carried_cycles_, csrs_, mmio_.addr, mmio_.data,
            mmio_.size_bytes, mmio_.write, mmio_insn_, mmio_pending_, waiting_, dead_,
            in_exception_);
    const uint32_t size = mmio_.size_bytes;
    archive.need(pc_ % 2 == 0 && mmio_insn_.rd < regs_.size() &&
                     (!mmio_pending_ || size == 1 || size == 2 || size == 4),
                 "a hart is at an access that it cannot make");
  }
  void set_breakpoint(uint32_t addr) { map_.set_breakpoint(addr); }
  void clear_breakpoint(uint32_t addr) { map_.clear_breakpoint(addr); }
  // Loads and stores leave their fast path while anything is watched.
  void set_watch(const HartWatch& watch) { watches_.set(watch); }
  void clear_watch(const HartWatch& watch) { watches_.clear(watch); }
  // The watch that the access met behind which the hart stands.
  const std::optional<HartWatch>& watch_hit() const { return watches_.hit(); }
  // Bytes of the memories; false: not inside of one. Read-only memory is written too.
  bool read_memory(uint32_t addr, std::span<uint8_t> data) const { return map_.read(addr, data); }
  bool write_memory(uint32_t addr, std::span<const uint8_t> data) { return map_.write(addr, data); }

 private:
  static constexpr uint32_t kNoBreakpoint = 1;  // no instruction has an odd address
  using Region = HartMap::Region;
  using Access = HartMap::Access;

  HartExit run_code(const Region& region, const void* entry, int64_t& left, uint64_t& retired);

  void enter_trap(uint32_t cause, uint32_t tval);
  bool take_interrupt();
  void return_from_trap();
  bool execute_csr(uint32_t raw, uint64_t cycles_now, uint64_t instret_now);
  HartRun interpret(uint64_t budget_cycles);

  const HartTiming timing_;
  HartMap map_;
  HartCsrs csrs_;
  HartWatches watches_;

  std::array<uint32_t, kRegisterCount + 1> regs_{};  // the last one takes writes to x0
  uint32_t pc_ = 0;
  uint64_t cycles_ = 0;
  uint64_t instret_ = 0;
  uint64_t carried_cycles_ = 0;  // cost of a completed device access, reported by the next run

  MmioAccess mmio_{};
  DecodedInsn mmio_insn_{};
  bool mmio_pending_ = false;
  bool waiting_ = false;
  bool dead_ = false;
  bool in_exception_ = false;                     // an exception handler has not returned yet
  uint32_t reported_breakpoint_ = kNoBreakpoint;  // address: run() goes on behind it
};

}  // namespace tpu::model
