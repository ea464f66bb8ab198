/* Register access of the firmware: the only place that touches MMIO. On the hart a volatile access;
   on the host (TPU_FW_HOST) functions that reach a fake core. Addresses are hart addresses.
   Block and register names come from spec/regs through the generated headers. */
#ifndef TPU_FIRMWARE_DEV_MMIO_H
#define TPU_FIRMWARE_DEV_MMIO_H

#include <stdint.h>

#include "tpu/spec/hart_map.h"

#ifdef TPU_FW_HOST
#ifdef __cplusplus
extern "C" {
#endif
uint32_t mmio_read32(uint32_t addr);
void mmio_write32(uint32_t addr, uint32_t value);
#ifdef __cplusplus
}
#endif
#else
static inline uint32_t mmio_read32(uint32_t addr) {
  return *(const volatile uint32_t*)(uintptr_t)addr;
}
static inline void mmio_write32(uint32_t addr, uint32_t value) {
  *(volatile uint32_t*)(uintptr_t)addr = value;
}
#endif

/* REG(SEQ, START): hart address of register START of block seq. */
#define REG(block, reg) (TPU_HART_##block##_BASE + TPU_##block##_##reg##_OFFSET)
#define REG_READ(block, reg) mmio_read32(REG(block, reg))
#define REG_WRITE(block, reg, value) mmio_write32(REG(block, reg), (value))
/* Register `reg` number `index` of a block with counted registers. */
#define REG_AT(block, reg, index) (REG(block, reg) + (uint32_t)(index)*TPU_##block##_##reg##_STRIDE)

#endif
