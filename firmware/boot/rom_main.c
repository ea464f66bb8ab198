/* Mask ROM: has the CRC unit of hostdma check the image that the host put into ITCM, and hands over
   to it; a bad image ends in state BAD_IMAGE, out of which only a reset leads. Sleeps while it
   waits. Its trap vector stays in force until the image sets its own. */
#include <stddef.h>
#include <stdint.h>

#include "dev/hostdma.h"
#include "dev/sysctl.h"
#include "tpu/spec/fault_regs.h"
#include "tpu/spec/rings.h"

#define RECORD_AT(field) \
  (REG_AT(SYSCTL, FAULT_RECORD, offsetof(tpu_fault_record_t, field) / sizeof(uint32_t)))
#define MIE_EXTERNAL (1u << 11)

static void stop(uint32_t state, uint32_t detail) {
  sysctl_set_state(state, detail);
  REG_WRITE(SYSCTL, MSI, SYSCTL_MSI_EVENT);
  REG_WRITE(IRQ, ENABLE, 0);
  for (;;) {
    __asm__ volatile("wfi");
  }
}

/* The record is all zero after reset. */
void rom_dead(uint32_t mepc, uint32_t mcause, uint32_t mtval) {
  const uint32_t id = REG_READ(SYSCTL, CORE_ID);
  const uint32_t core = (id & TPU_SYSCTL_CORE_ID_CORE_MASK) >> TPU_SYSCTL_CORE_ID_CORE_SHIFT;
  mmio_write32(RECORD_AT(fault_seq), 1);
  mmio_write32(RECORD_AT(code), TPU_FAULT_FW_TRAP | (TPU_FAULT_ENGINE_HART << 16) | (core << 24));
  mmio_write32(RECORD_AT(op_id), TPU_OP_NONE);
  mmio_write32(RECORD_AT(hart_mepc), mepc);
  mmio_write32(RECORD_AT(hart_mcause), mcause);
  mmio_write32(RECORD_AT(hart_mtval), mtval);
  REG_WRITE(SYSCTL, FAULT_SEQ, 1);
  stop(TPU_CORE_PAGE_STATE_DEAD, mcause & 0xFFFFu);
}

uint32_t rom_main(void) {
  sysctl_set_state(TPU_CORE_PAGE_STATE_ROM, 0);
  const uint32_t bytes = REG_READ(SYSCTL, BOOT_LEN);
  const uint32_t entry = REG_READ(SYSCTL, BOOT_ENTRY);
  if (bytes == 0 || bytes > TPU_HART_ITCM_BYTES || entry - TPU_HART_ITCM_BASE >= bytes) {
    stop(TPU_CORE_PAGE_STATE_BAD_IMAGE, 1);
  }
  REG_WRITE(IRQ, ENABLE, TPU_IRQ_HOST_DMA);
  __asm__ volatile("csrw mie, %0" ::"r"(MIE_EXTERNAL));
  const hostdma_transfer_t transfer = {
      .local = TPU_HART_ITCM_BASE,
      .bytes = bytes,
      .control = HOSTDMA_CONTROL(CRC, TCM) | TPU_HOSTDMA_START_CRC_MASK,
  };
  hostdma_start(TPU_HOSTDMA_CTX_SPARE, &transfer);
  while (REG_READ(IRQ, TAKE) == 0) {
    __asm__ volatile("wfi");
  }
  hostdma_take_done();
  if (hostdma_error(TPU_HOSTDMA_CTX_SPARE) != 0 ||
      hostdma_crc(TPU_HOSTDMA_CTX_SPARE) != REG_READ(SYSCTL, BOOT_CRC)) {
    stop(TPU_CORE_PAGE_STATE_BAD_IMAGE, 2);
  }
  return entry;
}
