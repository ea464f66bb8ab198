// What a control hart sees of its core, for the firmware's tests: the register blocks of spec/regs
// with host memory, HBM and slot banks behind them. Nothing happens by itself: transfers, barriers
// and programs end when the test says so, in any order. Not modelled: time (a counter), the
// engines, other cores.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tpu/spec/hostdma_regs.h"
#include "tpu/spec/rings.h"

namespace tpu::test {

uint32_t crc32c(std::span<const uint8_t> bytes);

class MockDevice {
 public:
  static constexpr uint32_t kHostBytes = 1U << 20;
  static constexpr uint32_t kHbmBytes = 1U << 20;
  static constexpr uint32_t kCore = 2;
  static constexpr uint32_t kCores = 8;

  MockDevice();

  // The hart's side. An address that is no register is counted in `bad_accesses`.
  uint32_t read(uint32_t addr);
  void write(uint32_t addr, uint32_t value);
  bool irq_line() const { return (irq_pending & irq_enable) != 0; }
  // Bytes of ITCM or DTCM, or an empty span outside of both. Set by the test.
  std::function<std::span<uint8_t>(uint64_t addr, uint64_t bytes)> tcm;

  // Core reset: nothing is under way; memories and the counts of this test stay.
  void reset();

  // Events.
  bool dma_busy(uint32_t context) const { return contexts[context].busy; }
  bool finish_dma(uint32_t context);  // false: the context is idle
  bool finish_any_dma();
  void release();    // ends a barrier
  void lose_peer();  // PEER_TIMEOUT is over in a barrier
  void abort(uint32_t tag, uint32_t origin, uint32_t code);
  void finish_program();
  void fault_program(const tpu_fault_record_t& record);
  void drained();
  void raise(uint32_t sources) { irq_pending |= sources; }
  // Ends all that is under way until nothing is; programs and barriers end well.
  bool settle_one();

  uint32_t& sys(uint32_t offset) { return sysctl[offset / 4]; }

  struct Context {
    uint64_t host = 0;
    uint64_t local = 0;
    uint64_t bytes = 0;
    uint32_t pattern = 0;
    uint32_t start = 0;
    uint32_t error = 0;
    uint32_t crc = 0;
    uint32_t entry_bad = 0;
    bool busy = false;
  };

  std::vector<uint8_t> host = std::vector<uint8_t>(kHostBytes);
  std::vector<uint8_t> hbm = std::vector<uint8_t>(kHbmBytes);
  std::vector<uint8_t> slot_banks;
  std::array<Context, TPU_HOSTDMA_CONTEXTS> contexts{};
  std::array<uint32_t, 1024> sysctl{};
  std::array<uint32_t, 1024> seq{};
  std::array<uint32_t, 1024> gsync{};
  uint32_t irq_pending = 0;
  uint32_t irq_enable = 0;
  uint32_t dma_done = 0;
  uint64_t time = 0;
  bool timer_armed = false;
  uint64_t timer_at = 0;
  bool program_running = false;
  bool draining = false;  // the sequencer was stopped
  bool barrier_waiting = false;
  bool echo_pending = false;  // this core's abort of its own gang has not come back from the root
  uint32_t barrier_kind = 0;
  int32_t bad_slot = -1;       // what SLOT_CHECK finds
  uint32_t slots_checked = 0;  // entries of the last SLOT_CHECK
  tpu_fault_record_t record{};
  unsigned records_taken = 0;  // FAULT.VALID was cleared
  struct Infeed {
    uint32_t full = 0;
    uint32_t free = 0;
    uint32_t want = 0;
  } infeed;
  unsigned counter_snapshots = 0;

  unsigned programs_started = 0;
  unsigned seq_resets = 0;
  unsigned event_msis = 0;
  unsigned completion_msis = 0;
  unsigned bad_accesses = 0;
  unsigned dma_escapes = 0;  // local addresses outside of the memory that they name
  struct Abort {
    uint32_t tag;
    uint32_t mask;
    uint32_t code;
  };
  std::vector<Abort> aborts_sent;
  std::vector<uint32_t> steps_started;

 private:
  uint32_t read_hostdma(uint32_t offset);
  void write_hostdma(uint32_t offset, uint32_t value);
  void write_seq(uint32_t offset, uint32_t value);
  void write_gsync(uint32_t offset, uint32_t value);
  void write_timer(uint32_t offset, uint32_t value);
  void write_infeed(uint32_t offset, uint32_t value);
  uint32_t transfer(Context& context);
  std::span<uint8_t> local_bytes(const Context& context);
};

}  // namespace tpu::test
