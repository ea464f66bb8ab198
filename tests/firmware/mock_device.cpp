// Registers and events of the mock device.
#include "mock_device.hpp"

#include <algorithm>
#include <cstring>

#include "tpu/spec/core_page_regs.h"
#include "tpu/spec/fault_regs.h"
#include "tpu/spec/gsync_regs.h"
#include "tpu/spec/hart_map.h"
#include "tpu/spec/infeed_regs.h"
#include "tpu/spec/irq_regs.h"
#include "tpu/spec/perf_regs.h"
#include "tpu/spec/seq_regs.h"
#include "tpu/spec/sysctl_regs.h"
#include "tpu/spec/timer_regs.h"

namespace tpu::test {
namespace {

uint32_t field(uint32_t value, uint32_t mask, uint32_t shift) { return (value & mask) >> shift; }
void set_half(uint64_t& target, bool high, uint32_t value) {
  target = high ? (target & 0xFFFFFFFFU) | uint64_t{value} << 32
                : (target & ~uint64_t{0xFFFFFFFF}) | value;
}

}  // namespace

uint32_t crc32c(std::span<const uint8_t> bytes) {
  uint32_t crc = ~0U;
  for (const uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
    }
  }
  return ~crc;
}

MockDevice::MockDevice() : slot_banks(TPU_SLOT_BANKS * size_t{TPU_SLOT_BANK_BYTES}) {
  sys(TPU_SYSCTL_ID_OFFSET) = TPU_SYSCTL_BLOCK_ID;
  sys(TPU_SYSCTL_CORE_ID_OFFSET) =
      kCore << TPU_SYSCTL_CORE_ID_CORE_SHIFT | kCores << TPU_SYSCTL_CORE_ID_CORES_SHIFT;
  sys(TPU_SYSCTL_WATCHDOG_KCYCLES_OFFSET) = 10;
  sys(TPU_SYSCTL_HBM_LO_OFFSET) = kHbmBytes;
  seq[TPU_SEQ_ID_OFFSET / 4] = TPU_SEQ_ID_VALUE;
}

void MockDevice::reset() {
  contexts = {};
  irq_pending = irq_enable = dma_done = 0;
  gsync = {};
  seq[TPU_SEQ_IRQ_STATUS_OFFSET / 4] = 0;
  program_running = draining = barrier_waiting = echo_pending = timer_armed = false;
  sys(TPU_SYSCTL_QUEUE_EN_OFFSET) = 0;
}

uint32_t MockDevice::read(uint32_t addr) {
  if (addr - TPU_HART_HBM_WINDOW_BASE < TPU_HART_HBM_WINDOW_BYTES) {
    const uint64_t at =
        sys(TPU_SYSCTL_HBM_WINDOW_LO_OFFSET) + uint64_t{addr - TPU_HART_HBM_WINDOW_BASE};
    uint32_t value = 0;
    if (at + 4 <= hbm.size()) {
      std::memcpy(&value, &hbm[at], 4);
    }
    return value;
  }
  const uint32_t offset = addr % TPU_HART_MMIO_BLOCK_BYTES;
  switch (addr - offset) {
    case TPU_HART_SYSCTL_BASE:
      return sys(offset);
    case TPU_HART_IRQ_BASE:
      if (offset == TPU_IRQ_TAKE_OFFSET) {
        const uint32_t taken = irq_pending & irq_enable;
        irq_pending &= ~taken;
        return taken;
      }
      return offset == TPU_IRQ_PENDING_OFFSET ? irq_pending : irq_enable;
    case TPU_HART_TIMER_BASE:
      return offset == TPU_TIMER_TIME_LO_OFFSET ? static_cast<uint32_t>(++time)
                                                : static_cast<uint32_t>(time >> 32);
    case TPU_HART_HOSTDMA_BASE:
      return read_hostdma(offset);
    case TPU_HART_SEQ_BASE:
      if (offset == TPU_SEQ_STATE_OFFSET) {
        return (program_running ? TPU_SEQ_STATE_RUNNING : TPU_SEQ_STATE_DONE) |
               (program_running || draining ? TPU_SEQ_STATE_BUSY_MASK : 0U);
      }
      return seq[offset / 4];
    case TPU_HART_GSYNC_BASE:
      return gsync[offset / 4];
    case TPU_HART_FAULT_BASE: {
      uint32_t value = 0;
      if (offset >= TPU_FAULT_RECORD_OFFSET && offset - TPU_FAULT_RECORD_OFFSET < sizeof record) {
        std::memcpy(&value,
                    reinterpret_cast<const uint8_t*>(&record) + (offset - TPU_FAULT_RECORD_OFFSET),
                    4);
      }
      return value;
    }
    case TPU_HART_PERF_BASE:  // counter i reads 1000 + i
      return (offset - TPU_PERF_COUNTER_OFFSET) % 8 == 0
                 ? 1000 + (offset - TPU_PERF_COUNTER_OFFSET) / 8
                 : 0;
    case TPU_HART_INFEED_BASE:
    case TPU_HART_CONSOLE_BASE:
    case TPU_HART_SEM_BASE:
      return 0;
    default:
      ++bad_accesses;
      return ~0U;
  }
}

void MockDevice::write(uint32_t addr, uint32_t value) {
  const uint32_t offset = addr % TPU_HART_MMIO_BLOCK_BYTES;
  switch (addr - offset) {
    case TPU_HART_SYSCTL_BASE:
      if (offset == TPU_SYSCTL_MSI_OFFSET) {
        event_msis += value == 1 ? 1 : 0;
      } else {
        sys(offset) = value;
      }
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
      write_hostdma(offset, value);
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

void MockDevice::write_timer(uint32_t offset, uint32_t value) {
  switch (offset) {
    case TPU_TIMER_CMP_LO_OFFSET:
    case TPU_TIMER_CMP_HI_OFFSET:
      set_half(timer_at, offset == TPU_TIMER_CMP_HI_OFFSET, value);
      timer_armed = timer_armed || offset == TPU_TIMER_CMP_HI_OFFSET;
      return;
    case TPU_TIMER_CTRL_OFFSET:
      timer_armed = false;
      return;
    default:
      ++bad_accesses;
  }
}

void MockDevice::write_infeed(uint32_t offset, uint32_t value) {
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

uint32_t MockDevice::read_hostdma(uint32_t offset) {
  if (offset == TPU_HOSTDMA_DONE_OFFSET) {
    return dma_done;
  }
  const Context& context = contexts.at(offset / TPU_HOSTDMA_START_STRIDE);
  switch (offset % TPU_HOSTDMA_START_STRIDE) {
    case TPU_HOSTDMA_STATUS_OFFSET:
      return (context.busy ? 1U : 0U) | context.error << TPU_HOSTDMA_STATUS_ERROR_SHIFT;
    case TPU_HOSTDMA_CRC_OUT_OFFSET:
      return context.crc;
    case TPU_HOSTDMA_ENTRY_BAD_OFFSET:
      return context.entry_bad;
    default:
      ++bad_accesses;
      return ~0U;
  }
}

void MockDevice::write_hostdma(uint32_t offset, uint32_t value) {
  if (offset == TPU_HOSTDMA_DONE_OFFSET) {
    dma_done &= ~value;
    return;
  }
  const uint32_t index = offset / TPU_HOSTDMA_START_STRIDE;
  Context& context = contexts.at(index);
  const uint32_t reg = offset % TPU_HOSTDMA_START_STRIDE;
  if (context.busy) {
    ++bad_accesses;  // the firmware must never touch a busy context
    return;
  }
  switch (reg) {
    case TPU_HOSTDMA_HOST_LO_OFFSET:
    case TPU_HOSTDMA_HOST_HI_OFFSET:
      set_half(context.host, reg == TPU_HOSTDMA_HOST_HI_OFFSET, value);
      return;
    case TPU_HOSTDMA_LOCAL_LO_OFFSET:
    case TPU_HOSTDMA_LOCAL_HI_OFFSET:
      set_half(context.local, reg == TPU_HOSTDMA_LOCAL_HI_OFFSET, value);
      return;
    case TPU_HOSTDMA_LEN_LO_OFFSET:
    case TPU_HOSTDMA_LEN_HI_OFFSET:
      set_half(context.bytes, reg == TPU_HOSTDMA_LEN_HI_OFFSET, value);
      return;
    case TPU_HOSTDMA_PATTERN_OFFSET:
      context.pattern = value;
      return;
    case TPU_HOSTDMA_START_OFFSET:
      context.start = value;
      context.error = 0;
      if (field(value, TPU_HOSTDMA_START_DIR_MASK, TPU_HOSTDMA_START_DIR_SHIFT) ==
              TPU_HOSTDMA_DIR_TO_HOST &&
          field(value, TPU_HOSTDMA_START_SPACE_MASK, TPU_HOSTDMA_START_SPACE_SHIFT) ==
              TPU_HOSTDMA_SPACE_TCM &&
          context.bytes <= TPU_HOSTDMA_POSTED_BYTES) {
        context.error = transfer(context);
        completion_msis += (value & TPU_HOSTDMA_START_MSI_MASK) != 0 ? 1 : 0;
      } else {
        context.busy = true;
      }
      return;
    default:
      ++bad_accesses;
  }
}

std::span<uint8_t> MockDevice::local_bytes(const Context& context) {
  const auto inside = [&](std::vector<uint8_t>& memory) -> std::span<uint8_t> {
    if (context.bytes > memory.size() || context.local > memory.size() - context.bytes) {
      return {};
    }
    return std::span(memory).subspan(context.local, context.bytes);
  };
  switch (field(context.start, TPU_HOSTDMA_START_SPACE_MASK, TPU_HOSTDMA_START_SPACE_SHIFT)) {
    case TPU_HOSTDMA_SPACE_HBM:
      return inside(hbm);
    case TPU_HOSTDMA_SPACE_SLOTS:
      return inside(slot_banks);
    default:
      return tcm(context.local, context.bytes);
  }
}

uint32_t MockDevice::transfer(Context& context) {
  const uint32_t dir =
      field(context.start, TPU_HOSTDMA_START_DIR_MASK, TPU_HOSTDMA_START_DIR_SHIFT);
  const uint32_t space =
      field(context.start, TPU_HOSTDMA_START_SPACE_MASK, TPU_HOSTDMA_START_SPACE_SHIFT);
  context.entry_bad = 0;
  std::span<uint8_t> local = local_bytes(context);
  if (local.size() != context.bytes) {
    dma_escapes += space == TPU_HOSTDMA_SPACE_HBM ? 0 : 1;  // HBM ranges come from the host
    return TPU_HOSTDMA_ERR_RANGE;
  }
  if (dir == TPU_HOSTDMA_DIR_FILL) {
    if (context.bytes % 4 != 0 || context.local % 4 != 0) {
      return TPU_HOSTDMA_ERR_ALIGN;
    }
    for (size_t i = 0; i < local.size(); i += 4) {
      std::memcpy(&local[i], &context.pattern, 4);
    }
    return 0;
  }
  if (dir == TPU_HOSTDMA_DIR_CRC) {
    context.crc = crc32c(local);
    return 0;
  }
  std::vector<uint8_t>& far = dir == TPU_HOSTDMA_DIR_D2D ? hbm : host;
  if (context.bytes > far.size() || context.host > far.size() - context.bytes) {
    return dir == TPU_HOSTDMA_DIR_D2D ? TPU_HOSTDMA_ERR_RANGE : TPU_HOSTDMA_ERR_HOST_ADDR;
  }
  const std::span<uint8_t> other = std::span(far).subspan(context.host, context.bytes);
  if (dir == TPU_HOSTDMA_DIR_TO_HOST) {
    std::copy(local.begin(), local.end(), other.begin());
    if ((context.start & TPU_HOSTDMA_START_SEAL_MASK) != 0 && context.bytes >= 4) {
      const uint32_t crc = crc32c(other.first(context.bytes - 4));
      std::memcpy(&other[context.bytes - 4], &crc, 4);
    }
    return 0;
  }
  std::vector<uint8_t> bytes(other.begin(), other.end());
  std::copy(bytes.begin(), bytes.end(), local.begin());
  context.crc = crc32c(bytes);
  if ((context.start & TPU_HOSTDMA_START_ENTRIES_MASK) != 0) {
    for (size_t i = 0; i < bytes.size() / TPU_CMD_ENTRY_BYTES; ++i) {
      const auto entry = std::span(bytes).subspan(i * TPU_CMD_ENTRY_BYTES, TPU_CMD_ENTRY_BYTES);
      uint32_t wanted = 0;
      std::memcpy(&wanted, &entry[TPU_CMD_ENTRY_BYTES - 4], 4);
      context.entry_bad |= crc32c(entry.first(TPU_CMD_ENTRY_BYTES - 4)) == wanted ? 0U : 1U << i;
    }
  }
  return 0;
}

bool MockDevice::finish_dma(uint32_t index) {
  Context& context = contexts.at(index);
  if (!context.busy) {
    return false;
  }
  context.error = transfer(context);
  context.busy = false;
  dma_done |= 1U << index;
  raise(TPU_IRQ_HOST_DMA);
  return true;
}

bool MockDevice::finish_any_dma() {
  for (uint32_t i = 0; i < contexts.size(); ++i) {
    if (finish_dma(i)) {
      return true;
    }
  }
  return false;
}

void MockDevice::write_seq(uint32_t offset, uint32_t value) {
  switch (offset) {
    case TPU_SEQ_START_OFFSET:
      program_running = true;
      ++programs_started;
      steps_started.push_back(seq[TPU_SEQ_STEP_OFFSET / 4]);
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
      slots_checked = (value & TPU_SEQ_SLOT_CHECK_COUNT_MASK) >> TPU_SEQ_SLOT_CHECK_COUNT_SHIFT;
      seq[TPU_SEQ_SLOT_RESULT_OFFSET / 4] =
          bad_slot < 0 ? 0U : TPU_SEQ_SLOT_RESULT_BAD_MASK | static_cast<uint32_t>(bad_slot);
      return;
    default:
      seq[offset / 4] = value;
  }
}

void MockDevice::write_gsync(uint32_t offset, uint32_t value) {
  uint32_t& state = gsync[TPU_GSYNC_STATE_OFFSET / 4];
  gsync[offset / 4] = value;
  switch (offset) {
    case TPU_GSYNC_TAG_OFFSET:
      state &= ~TPU_GSYNC_STATE_ABORTED_MASK;
      echo_pending = false;
      return;
    case TPU_GSYNC_ARRIVE_OFFSET:
      state &= ~(TPU_GSYNC_STATE_RELEASED_MASK | TPU_GSYNC_STATE_PEER_LOST_MASK);
      barrier_waiting = true;
      barrier_kind = value;
      return;
    case TPU_GSYNC_ABORT_OFFSET:
      aborts_sent.push_back(
          {gsync[TPU_GSYNC_ABORT_TAG_OFFSET / 4], gsync[TPU_GSYNC_ABORT_MASK_OFFSET / 4], value});
      echo_pending = aborts_sent.back().tag == gsync[TPU_GSYNC_TAG_OFFSET / 4] &&
                     gsync[TPU_GSYNC_MASK_OFFSET / 4] != 0 &&
                     (state & TPU_GSYNC_STATE_ABORTED_MASK) == 0;
      return;
    default:
      return;
  }
}

void MockDevice::release() {
  barrier_waiting = false;
  gsync[TPU_GSYNC_STATE_OFFSET / 4] |= TPU_GSYNC_STATE_RELEASED_MASK;
  raise(TPU_IRQ_BARRIER);
}

void MockDevice::lose_peer() {
  barrier_waiting = false;
  gsync[TPU_GSYNC_STATE_OFFSET / 4] |= TPU_GSYNC_STATE_PEER_LOST_MASK;
  raise(TPU_IRQ_BARRIER);
}

void MockDevice::abort(uint32_t tag, uint32_t origin, uint32_t code) {
  echo_pending = false;
  if (tag != gsync[TPU_GSYNC_TAG_OFFSET / 4] || gsync[TPU_GSYNC_MASK_OFFSET / 4] == 0 ||
      (gsync[TPU_GSYNC_STATE_OFFSET / 4] & TPU_GSYNC_STATE_ABORTED_MASK) != 0) {
    return;  // in no gang or another one, or aborted already
  }
  barrier_waiting = false;
  gsync[TPU_GSYNC_STATE_OFFSET / 4] |= TPU_GSYNC_STATE_ABORTED_MASK;
  gsync[TPU_GSYNC_ABORT_INFO_OFFSET / 4] =
      origin << TPU_GSYNC_ABORT_INFO_ORIGIN_SHIFT | code << TPU_GSYNC_ABORT_INFO_CODE_SHIFT;
  draining = draining || program_running;
  program_running = false;
  raise(TPU_IRQ_ABORT);
}

void MockDevice::finish_program() {
  program_running = false;
  seq[TPU_SEQ_IRQ_STATUS_OFFSET / 4] |= TPU_SEQ_IRQ_STATUS_DONE_MASK;
  raise(TPU_IRQ_PROGRAM_DONE);
}

void MockDevice::fault_program(const tpu_fault_record_t& what) {
  record = what;
  program_running = false;
  draining = true;
  seq[TPU_SEQ_IRQ_STATUS_OFFSET / 4] |= TPU_SEQ_IRQ_STATUS_FAULT_MASK;
  raise(TPU_IRQ_ENGINE_FAULT);
}

void MockDevice::drained() {
  draining = false;
  seq[TPU_SEQ_IRQ_STATUS_OFFSET / 4] |= TPU_SEQ_IRQ_STATUS_DRAINED_MASK;
  raise(TPU_IRQ_ENGINES_IDLE);
}

bool MockDevice::settle_one() {
  if (finish_any_dma()) {
    return true;
  }
  if (echo_pending) {
    abort(aborts_sent.back().tag, kCore, aborts_sent.back().code);
    return true;
  }
  if (barrier_waiting) {
    release();
    return true;
  }
  if (draining) {
    drained();
    return true;
  }
  if (program_running) {
    finish_program();
    return true;
  }
  return false;
}

}  // namespace tpu::test
