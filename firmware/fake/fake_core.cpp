// Registers and events of a fake core.
#include "fake/fake_core.hpp"

#include <algorithm>
#include <cstring>

#include "tpu/spec/fault_regs.h"
#include "tpu/spec/gsync_regs.h"
#include "tpu/spec/hart_map.h"
#include "tpu/spec/infeed_regs.h"
#include "tpu/spec/irq_regs.h"
#include "tpu/spec/perf_regs.h"
#include "tpu/spec/seq_regs.h"
#include "tpu/spec/sysctl_regs.h"
#include "tpu/spec/timer_regs.h"

namespace tpu::firmware {
namespace {

constexpr uint32_t kAllOnes = ~0U;

uint32_t high_half(uint64_t value) { return static_cast<uint32_t>(value >> 32); }

}  // namespace

FakeCore::FakeCore(const Identity& identity, FakeSurroundings& around)
    : dma(around, identity.core), around_(around), core_(identity.core), cores_(identity.cores) {
  sys(TPU_SYSCTL_ID_OFFSET) = TPU_SYSCTL_BLOCK_ID;
  sys(TPU_SYSCTL_CORE_ID_OFFSET) = identity.core << TPU_SYSCTL_CORE_ID_CORE_SHIFT |
                                   identity.cores << TPU_SYSCTL_CORE_ID_CORES_SHIFT;
  sys(TPU_SYSCTL_WATCHDOG_KCYCLES_OFFSET) = identity.watchdog_kcycles;
  sys(TPU_SYSCTL_HBM_LO_OFFSET) = static_cast<uint32_t>(identity.hbm_bytes);
  sys(TPU_SYSCTL_HBM_HI_OFFSET) = high_half(identity.hbm_bytes);
  seq[TPU_SEQ_ID_OFFSET / 4] = TPU_SEQ_ID_VALUE;
}

void FakeCore::reset() {
  dma.reset();
  irq_pending = irq_enable = 0;
  gsync = {};
  gang_ = {};
  infeed = {};
  seq[TPU_SEQ_IRQ_STATUS_OFFSET / 4] = 0;
  program_running = draining = barrier_waiting = timer_armed = false;
  sys(TPU_SYSCTL_QUEUE_EN_OFFSET) = 0;
}

uint32_t FakeCore::take_interrupts() {
  const uint32_t taken = irq_pending & irq_enable;
  irq_pending &= ~taken;
  return taken;
}

uint32_t FakeCore::read(uint32_t addr) {
  if (addr - TPU_HART_HBM_WINDOW_BASE < TPU_HART_HBM_WINDOW_BYTES) {
    return read_window(addr - TPU_HART_HBM_WINDOW_BASE);
  }
  const uint32_t offset = addr % TPU_HART_MMIO_BLOCK_BYTES;
  switch (addr - offset) {
    case TPU_HART_SYSCTL_BASE:
      return sys(offset);
    case TPU_HART_IRQ_BASE:
      if (offset == TPU_IRQ_TAKE_OFFSET) {
        return take_interrupts();
      }
      return offset == TPU_IRQ_PENDING_OFFSET ? irq_pending : irq_enable;
    case TPU_HART_TIMER_BASE:
      return read_timer(offset);
    case TPU_HART_HOSTDMA_BASE: {
      uint32_t value = kAllOnes;
      bad_accesses += dma.read(offset, value) ? 0 : 1;
      return value;
    }
    case TPU_HART_SEQ_BASE:
      return read_seq(offset);
    case TPU_HART_GSYNC_BASE:
      return gsync[offset / 4];
    case TPU_HART_FAULT_BASE:
      return read_fault(offset);
    case TPU_HART_PERF_BASE:
      return read_perf(offset);
    case TPU_HART_INFEED_BASE:
    case TPU_HART_CONSOLE_BASE:
    case TPU_HART_SEM_BASE:
      return 0;
    default:
      ++bad_accesses;
      return kAllOnes;
  }
}

uint32_t FakeCore::read_window(uint32_t offset) {
  const uint64_t at = sys(TPU_SYSCTL_HBM_WINDOW_LO_OFFSET) +
                      (uint64_t{sys(TPU_SYSCTL_HBM_WINDOW_HI_OFFSET)} << 32) + offset;
  uint32_t value = 0;
  if (around_.hbm_holds(core_, at, sizeof(value))) {
    around_.read_hbm(at, std::as_writable_bytes(std::span(&value, 1)));
  }
  return value;
}

uint32_t FakeCore::read_timer(uint32_t offset) {
  if (offset == TPU_TIMER_TIME_LO_OFFSET) {
    latched_cycle_ = around_.cycle();
    return static_cast<uint32_t>(latched_cycle_);
  }
  return high_half(latched_cycle_);
}

uint32_t FakeCore::read_seq(uint32_t offset) const {
  if (offset == TPU_SEQ_STATE_OFFSET) {
    return (program_running ? TPU_SEQ_STATE_RUNNING : TPU_SEQ_STATE_DONE) |
           (program_running || draining ? TPU_SEQ_STATE_BUSY_MASK : 0U);
  }
  return seq[offset / 4];
}

uint32_t FakeCore::read_fault(uint32_t offset) const {
  uint32_t value = 0;
  if (offset >= TPU_FAULT_RECORD_OFFSET && offset - TPU_FAULT_RECORD_OFFSET < sizeof(record)) {
    const auto bytes = std::as_bytes(std::span(&record, 1));
    std::memcpy(&value, bytes.subspan(offset - TPU_FAULT_RECORD_OFFSET).data(), sizeof(value));
  }
  return value;
}

uint32_t FakeCore::read_perf(uint32_t offset) {
  const uint32_t word = (offset - TPU_PERF_COUNTER_OFFSET) / 4;
  const uint64_t value = around_.counter(word / 2);
  return word % 2 == 0 ? static_cast<uint32_t>(value) : high_half(value);
}

void FakeCore::write(uint32_t addr, uint32_t value) {
  const uint32_t offset = addr % TPU_HART_MMIO_BLOCK_BYTES;
  switch (addr - offset) {
    case TPU_HART_SYSCTL_BASE:
      write_sysctl(offset, value);
      return;
    case TPU_HART_IRQ_BASE:
      if (offset == TPU_IRQ_ENABLE_OFFSET) {
        irq_enable = value;
      }
      return;
    case TPU_HART_TIMER_BASE:
      write_timer(offset, value);
      return;
    case TPU_HART_HOSTDMA_BASE:
      bad_accesses += dma.write(offset, value) ? 0 : 1;
      return;
    case TPU_HART_SEQ_BASE:
      write_seq(offset, value);
      return;
    case TPU_HART_GSYNC_BASE:
      write_gsync(offset, value);
      return;
    case TPU_HART_FAULT_BASE:
      records_taken += offset == TPU_FAULT_VALID_OFFSET ? 1 : 0;
      return;
    case TPU_HART_PERF_BASE:
      counter_snapshots += offset == TPU_PERF_SNAPSHOT_OFFSET ? 1 : 0;
      return;
    case TPU_HART_INFEED_BASE:
      write_infeed(offset, value);
      return;
    case TPU_HART_CONSOLE_BASE:
    case TPU_HART_SEM_BASE:
      return;
    default:
      ++bad_accesses;
  }
}

void FakeCore::write_sysctl(uint32_t offset, uint32_t value) {
  if (offset == TPU_SYSCTL_MSI_OFFSET) {
    around_.send_msi(value);
  } else {
    sys(offset) = value;
  }
}

void FakeCore::write_timer(uint32_t offset, uint32_t value) {
  switch (offset) {
    case TPU_TIMER_CMP_LO_OFFSET:
      timer_at = (timer_at & ~uint64_t{kAllOnes}) | value;
      return;
    case TPU_TIMER_CMP_HI_OFFSET:
      timer_at = (timer_at & kAllOnes) | uint64_t{value} << 32;
      timer_armed = true;
      return;
    case TPU_TIMER_CTRL_OFFSET:
      timer_armed = false;
      return;
    default:
      ++bad_accesses;
  }
}

void FakeCore::write_infeed(uint32_t offset, uint32_t value) {
  switch (offset) {
    case TPU_INFEED_FULL_OFFSET:
      infeed.full = value;
      return;
    case TPU_INFEED_FREE_OFFSET:
      infeed.free = value;
      return;
    case TPU_INFEED_PUSH_OFFSET:
      infeed.full += value;
      return;
    case TPU_INFEED_POP_OFFSET:
      infeed.free += value;
      return;
    case TPU_INFEED_WANT_OFFSET:
      infeed.want = value;
      return;
    default:
      ++bad_accesses;
  }
}

bool FakeCore::finish_dma(uint32_t context) {
  if (!dma.finish(context)) {
    return false;
  }
  raise(TPU_IRQ_HOST_DMA);
  return true;
}

bool FakeCore::finish_any_dma() {
  for (uint32_t i = 0; i < dma.contexts.size(); ++i) {
    if (finish_dma(i)) {
      return true;
    }
  }
  return false;
}

void FakeCore::write_seq(uint32_t offset, uint32_t value) {
  switch (offset) {
    case TPU_SEQ_START_OFFSET:
      program_running = true;
      ++programs_started;
      around_.program_started();
      return;
    case TPU_SEQ_ABORT_OFFSET:
      draining = program_running;
      program_running = false;
      return;
    case TPU_SEQ_RESET_OFFSET:
      ++seq_resets;
      program_running = draining = false;
      seq[TPU_SEQ_IRQ_STATUS_OFFSET / 4] = 0;
      return;
    case TPU_SEQ_IRQ_STATUS_OFFSET:
      seq[offset / 4] &= ~value;
      return;
    case TPU_SEQ_SLOT_CHECK_OFFSET:
      check_slots(value);
      return;
    case TPU_SEQ_GANG_CHECK_OFFSET:
      check_gang(value);
      return;
    default:
      seq[offset / 4] = value;
  }
}

void FakeCore::check_slots(uint32_t value) {
  const uint32_t bank = (value & TPU_SEQ_SLOT_CHECK_BANK_MASK) >> TPU_SEQ_SLOT_CHECK_BANK_SHIFT;
  const uint32_t count = (value & TPU_SEQ_SLOT_CHECK_COUNT_MASK) >> TPU_SEQ_SLOT_CHECK_COUNT_SHIFT;
  const int32_t bad = first_bad_slot(bank, count);
  seq[TPU_SEQ_SLOT_RESULT_OFFSET / 4] =
      bad < 0 ? 0U : TPU_SEQ_SLOT_RESULT_BAD_MASK | static_cast<uint32_t>(bad);
}

namespace {

std::vector<tpu_slot_entry_t> entries_of(std::span<const std::byte> bank, uint32_t count) {
  std::vector<tpu_slot_entry_t> entries(count);
  const auto bytes = std::as_writable_bytes(std::span(entries));
  std::copy_n(bank.begin(), std::min(bank.size(), bytes.size()), bytes.begin());
  return entries;
}

// As the sequencer checks it.
bool slot_is_good(const tpu_slot_entry_t& slot, FakeSurroundings& around, uint32_t core) {
  const auto good = [&](uint64_t base, uint64_t bytes) {
    return base % TPU_SLOT_ALIGN == 0 && around.hbm_holds(core, base, bytes);
  };
  if (slot.flags != 0 && (slot.flags != TPU_SLOT_FLAG_FRESH || slot.mode != TPU_SLOT_FIXED)) {
    return false;
  }
  if (slot.mode == TPU_SLOT_NULL) {
    return true;
  }
  if (!good(slot.base, slot.size)) {
    return false;
  }
  switch (slot.mode) {
    case TPU_SLOT_FIXED:
      return true;
    case TPU_SLOT_INFEED:
    case TPU_SLOT_OUTFEED:
      return slot.depth > 0 && good(slot.base, slot.size + uint64_t{slot.depth - 1U} * slot.stride);
    case TPU_SLOT_PINGPONG:
      return good(slot.alt_base, slot.size);
    default:
      return false;
  }
}

}  // namespace

int32_t FakeCore::first_bad_slot(uint32_t bank, uint32_t count) {
  const auto entries = entries_of(dma.slot_banks[bank], count);
  const auto bad = std::find_if(entries.begin(), entries.end(), [&](const tpu_slot_entry_t& slot) {
    return !slot_is_good(slot, around_, core_);
  });
  return bad == entries.end() ? -1 : static_cast<int32_t>(bad - entries.begin());
}

std::vector<tpu_slot_entry_t> FakeCore::slots() const {
  const uint32_t bank = seq_reg(TPU_SEQ_SLOT_BANK_OFFSET) % TPU_SEQ_SLOT_BANKS;
  return entries_of(dma.slot_banks[bank], seq_reg(TPU_SEQ_SLOT_COUNT_OFFSET));
}

spec::CoreSet FakeCore::rows_of(uint32_t bank, uint32_t row, uint32_t rows) const {
  const std::span<const std::byte> all(dma.slot_banks[bank]);
  const size_t at = size_t{row} * sizeof(tpu_slot_entry_t);
  const size_t bytes = size_t{rows} * TPU_GANG_ROW_BYTES;
  std::vector<uint32_t> words(bytes / sizeof(uint32_t));
  if (at + bytes > all.size()) {
    return {};
  }
  std::memcpy(words.data(), all.data() + at, bytes);
  return spec::CoreSet(words);
}

void FakeCore::check_gang(uint32_t value) {
  const spec::CoreSet gang =
      rows_of((value & TPU_SEQ_GANG_CHECK_BANK_MASK) >> TPU_SEQ_GANG_CHECK_BANK_SHIFT,
              (value & TPU_SEQ_GANG_CHECK_ROW_MASK) >> TPU_SEQ_GANG_CHECK_ROW_SHIFT,
              (value & TPU_SEQ_GANG_CHECK_ROWS_MASK) >> TPU_SEQ_GANG_CHECK_ROWS_SHIFT);
  seq[TPU_SEQ_GANG_RESULT_OFFSET / 4] = gang.has(core_) && gang.end() <= cores_
                                            ? gang.size() << TPU_SEQ_GANG_RESULT_CORES_SHIFT |
                                                  gang.lowest() << TPU_SEQ_GANG_RESULT_ROOT_SHIFT
                                            : 0U;
}

void FakeCore::join_gang(uint32_t mask) {
  const uint32_t rows = seq_reg(TPU_SEQ_REPLICA_OFFSET) >> TPU_SEQ_REPLICA_GANG_ROWS_SHIFT;
  if (mask == 0 || rows == 0) {
    gang_ = spec::CoreSet(mask);
  } else {
    gang_ = rows_of(seq_reg(TPU_SEQ_SLOT_BANK_OFFSET), seq_reg(TPU_SEQ_SLOT_COUNT_OFFSET), rows);
  }
}

void FakeCore::send_abort(uint32_t code) {
  const uint32_t tag = gsync_reg(TPU_GSYNC_ABORT_TAG_OFFSET);
  const uint32_t mask = gsync_reg(TPU_GSYNC_ABORT_MASK_OFFSET);
  if (mask != 0) {
    const spec::CoreSet gang(cores_ < TPU_MASK_CORES ? mask & ((1U << cores_) - 1U) : mask);
    if (!gang.empty()) {
      around_.abort_sent(tag, gang.lowest(), gang, code);
    }
  } else if (!gang_.empty() && tag == gsync_reg(TPU_GSYNC_TAG_OFFSET)) {
    around_.abort_sent(tag, gang_.lowest(), gang_, code);
  } else {
    around_.abort_sent(tag, gsync_reg(TPU_GSYNC_ABORT_ROOT_OFFSET), {}, code);
  }
}

void FakeCore::write_gsync(uint32_t offset, uint32_t value) {
  uint32_t& state = gsync[TPU_GSYNC_STATE_OFFSET / 4];
  gsync[offset / 4] = value;
  switch (offset) {
    case TPU_GSYNC_TAG_OFFSET:
      state &= ~TPU_GSYNC_STATE_ABORTED_MASK;
      return;
    case TPU_GSYNC_MASK_OFFSET:
      join_gang(value);
      return;
    case TPU_GSYNC_ARRIVE_OFFSET:
      state &= ~(TPU_GSYNC_STATE_RELEASED_MASK | TPU_GSYNC_STATE_PEER_LOST_MASK);
      barrier_waiting = true;
      barrier_kind = value;
      around_.arrived(value);
      return;
    case TPU_GSYNC_ABORT_OFFSET:
      send_abort(value);
      return;
    default:
      return;
  }
}

void FakeCore::end_barrier(uint32_t state) {
  barrier_waiting = false;
  gsync[TPU_GSYNC_STATE_OFFSET / 4] |= state;
  raise(TPU_IRQ_BARRIER);
}

void FakeCore::release() { end_barrier(TPU_GSYNC_STATE_RELEASED_MASK); }

void FakeCore::lose_peer() { end_barrier(TPU_GSYNC_STATE_PEER_LOST_MASK); }

void FakeCore::abort(uint32_t tag, uint32_t origin, uint32_t code) {
  uint32_t& state = gsync[TPU_GSYNC_STATE_OFFSET / 4];
  if (tag != gsync_reg(TPU_GSYNC_TAG_OFFSET) || gsync_reg(TPU_GSYNC_MASK_OFFSET) == 0 ||
      (state & TPU_GSYNC_STATE_ABORTED_MASK) != 0) {
    return;  // in no gang or another one, or aborted already
  }
  barrier_waiting = false;
  state |= TPU_GSYNC_STATE_ABORTED_MASK;
  gsync[TPU_GSYNC_ABORT_INFO_OFFSET / 4] =
      origin << TPU_GSYNC_ABORT_INFO_ORIGIN_SHIFT | code << TPU_GSYNC_ABORT_INFO_CODE_SHIFT;
  draining = draining || program_running;
  program_running = false;
  raise(TPU_IRQ_ABORT);
}

void FakeCore::finish_program() {
  program_running = false;
  seq[TPU_SEQ_IRQ_STATUS_OFFSET / 4] |= TPU_SEQ_IRQ_STATUS_DONE_MASK;
  raise(TPU_IRQ_PROGRAM_DONE);
}

void FakeCore::fault_program(const tpu_fault_record_t& what) {
  record = what;
  program_running = false;
  draining = true;
  seq[TPU_SEQ_IRQ_STATUS_OFFSET / 4] |= TPU_SEQ_IRQ_STATUS_FAULT_MASK;
  raise(TPU_IRQ_ENGINE_FAULT);
}

void FakeCore::drained() {
  draining = false;
  seq[TPU_SEQ_IRQ_STATUS_OFFSET / 4] |= TPU_SEQ_IRQ_STATUS_DRAINED_MASK;
  raise(TPU_IRQ_ENGINES_IDLE);
}

}  // namespace tpu::firmware
