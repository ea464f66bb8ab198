/* sysctl, irq, timer, infeed and console: one-line accesses. */
#ifndef TPU_FIRMWARE_DEV_SYSCTL_H
#define TPU_FIRMWARE_DEV_SYSCTL_H

#include <stdint.h>

#include "dev/mmio.h"
#include "tpu/spec/console_regs.h"
#include "tpu/spec/core_page_regs.h"
#include "tpu/spec/infeed_regs.h"
#include "tpu/spec/irq_regs.h"
#include "tpu/spec/sysctl_regs.h"
#include "tpu/spec/timer_regs.h"

/* MSI vectors as sysctl counts them. */
#define SYSCTL_MSI_EVENT 1u
#define SYSCTL_MSI_CHIP 4u

static inline void sysctl_set_state(uint32_t state, uint32_t detail) {
  REG_WRITE(SYSCTL, FW_STATE,
            (state << TPU_CORE_PAGE_FW_STATE_STATE_SHIFT) |
                (detail << TPU_CORE_PAGE_FW_STATE_DETAIL_SHIFT));
}

static inline uint64_t sysctl_read64(uint32_t low_addr) {
  const uint32_t low = mmio_read32(low_addr);
  return ((uint64_t)mmio_read32(low_addr + 4) << 32) | low;
}

/* Places the hart's window on HBM; `offset` is a multiple of 4. */
static inline void sysctl_set_window(uint64_t offset) {
  REG_WRITE(SYSCTL, HBM_WINDOW_LO, (uint32_t)offset);
  REG_WRITE(SYSCTL, HBM_WINDOW_HI, (uint32_t)(offset >> 32));
}

static inline uint64_t timer_now(void) { return sysctl_read64(REG(TIMER, TIME_LO)); }

static inline void timer_arm(uint64_t at) {
  REG_WRITE(TIMER, CMP_LO, (uint32_t)at);
  REG_WRITE(TIMER, CMP_HI, (uint32_t)(at >> 32));
}

static inline void timer_disarm(void) { REG_WRITE(TIMER, CTRL, 0); }

/* Trace word: tag in the top byte, value below. */
static inline void console_trace(uint32_t tag, uint32_t value) {
  REG_WRITE(CONSOLE, TRACE, (tag << 24) | (value & 0xFFFFFFu));
}

#endif
