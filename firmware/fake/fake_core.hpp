// What a control hart sees of its core: the register blocks of spec/regs. Nothing happens by
// itself: transfers, barriers and programs end when the owner of the core says so, in any order.
// Not modelled: time (the owner counts the clock), the engines.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "fake/fake_dma.hpp"
#include "fake/fake_surroundings.hpp"
#include "gang/core_set.hpp"
#include "tpu/spec/rings.h"

namespace tpu::firmware {

class FakeCore {
 public:
  virtual ~FakeCore() = default;
  struct Identity {
    uint32_t core = 0;  ///< on the board
    uint32_t cores = 1;
    uint64_t hbm_bytes = 0;
    uint32_t watchdog_kcycles = 0;  ///< default watchdog of a launch
  };

  FakeCore(const Identity& identity, FakeSurroundings& around);

  // The hart's side. An address that is no register is counted in `bad_accesses`.
  uint32_t read(uint32_t addr);
  void write(uint32_t addr, uint32_t value);
  bool irq_line() const { return (irq_pending & irq_enable) != 0; }
  /// Reads irq TAKE.
  uint32_t take_interrupts();

  /// Core reset: nothing is under way; the core page and the counts of this class stay.
  void reset();
  uint32_t& sys(uint32_t offset) { return sysctl[offset / 4]; }
  uint32_t seq_reg(uint32_t offset) const { return seq[offset / 4]; }
  uint32_t gsync_reg(uint32_t offset) const { return gsync[offset / 4]; }

  /// Cores of the gang that the core is in; none: in no gang.
  const spec::CoreSet& gang() const { return gang_; }

  // Events.
  bool dma_busy(uint32_t context) const { return dma.contexts[context].busy; }
  bool finish_dma(uint32_t context);  ///< false: the context is idle
  bool finish_any_dma();
  void release();    ///< ends a barrier
  void lose_peer();  ///< PEER_TIMEOUT is over in a barrier
  /// An abort of the gang that this core is in; nothing when it is aborted already.
  void abort(uint32_t tag, uint32_t origin, uint32_t code);
  void finish_program();
  void fault_program(const tpu_fault_record_t& what);
  void drained();
  void raise(uint32_t sources) { irq_pending |= sources; }

  /// Entries of the slot bank that the sequencer uses.
  std::vector<tpu_slot_entry_t> slots() const;
  /// First entry that SLOT_CHECK rejects, or -1.
  virtual int32_t first_bad_slot(uint32_t bank, uint32_t count);

  FakeDma dma;
  std::array<uint32_t, 1024> sysctl{};
  std::array<uint32_t, 1024> seq{};
  std::array<uint32_t, 1024> gsync{};
  uint32_t irq_pending = 0;
  uint32_t irq_enable = 0;
  bool timer_armed = false;
  uint64_t timer_at = 0;
  bool program_running = false;
  bool draining = false;  ///< the sequencer was stopped, its engines are not idle yet
  bool barrier_waiting = false;
  uint32_t barrier_kind = 0;
  tpu_fault_record_t record{};  ///< that the engines left
  struct Infeed {
    uint32_t full = 0;
    uint32_t free = 0;
    uint32_t want = 0;
  } infeed;

  unsigned programs_started = 0;
  unsigned records_taken = 0;  ///< FAULT.VALID was cleared
  unsigned counter_snapshots = 0;
  unsigned seq_resets = 0;
  unsigned bad_accesses = 0;

 private:
  uint32_t read_window(uint32_t offset);
  uint32_t read_timer(uint32_t offset);
  uint32_t read_fault(uint32_t offset) const;
  uint32_t read_seq(uint32_t offset) const;
  uint32_t read_perf(uint32_t offset);
  void write_sysctl(uint32_t offset, uint32_t value);
  void write_timer(uint32_t offset, uint32_t value);
  void write_infeed(uint32_t offset, uint32_t value);
  void write_seq(uint32_t offset, uint32_t value);
  spec::CoreSet rows_of(uint32_t bank, uint32_t row, uint32_t rows) const;
  void check_gang(uint32_t value);
  void join_gang(uint32_t mask);
  void send_abort(uint32_t code);
  void write_gsync(uint32_t offset, uint32_t value);
  void check_slots(uint32_t value);
  void end_barrier(uint32_t state);

  FakeSurroundings& around_;
  const uint32_t core_;
  const uint32_t cores_;
  spec::CoreSet gang_;
  uint64_t latched_cycle_ = 0;
};

}  // namespace tpu::firmware
