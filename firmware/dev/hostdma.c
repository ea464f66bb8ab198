/* hostdma: see the header. */
#include "dev/hostdma.h"

#include "dev/mmio.h"

void hostdma_start(uint32_t context, const hostdma_transfer_t* transfer) {
  const uint32_t base = TPU_HART_HOSTDMA_BASE + context * TPU_HOSTDMA_START_STRIDE;
  mmio_write32(base + TPU_HOSTDMA_HOST_LO_OFFSET, (uint32_t)transfer->host);
  mmio_write32(base + TPU_HOSTDMA_HOST_HI_OFFSET, (uint32_t)(transfer->host >> 32));
  mmio_write32(base + TPU_HOSTDMA_LOCAL_LO_OFFSET, (uint32_t)transfer->local);
  mmio_write32(base + TPU_HOSTDMA_LOCAL_HI_OFFSET, (uint32_t)(transfer->local >> 32));
  mmio_write32(base + TPU_HOSTDMA_LEN_LO_OFFSET, (uint32_t)transfer->bytes);
  mmio_write32(base + TPU_HOSTDMA_LEN_HI_OFFSET, (uint32_t)(transfer->bytes >> 32));
  mmio_write32(base + TPU_HOSTDMA_PATTERN_OFFSET, transfer->pattern);
  mmio_write32(base + TPU_HOSTDMA_START_OFFSET, transfer->control);
}

uint32_t hostdma_take_done(void) {
  const uint32_t done = REG_READ(HOSTDMA, DONE);
  REG_WRITE(HOSTDMA, DONE, done);
  return done;
}

uint32_t hostdma_error(uint32_t context) {
  const uint32_t status = mmio_read32(REG_AT(HOSTDMA, STATUS, context));
  return (status & TPU_HOSTDMA_STATUS_ERROR_MASK) >> TPU_HOSTDMA_STATUS_ERROR_SHIFT;
}

uint32_t hostdma_crc(uint32_t context) { return mmio_read32(REG_AT(HOSTDMA, CRC_OUT, context)); }

uint32_t hostdma_entry_bad(uint32_t context) {
  return mmio_read32(REG_AT(HOSTDMA, ENTRY_BAD, context));
}
