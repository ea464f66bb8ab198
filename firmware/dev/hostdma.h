/* hostdma: starts transfers and reads their results. Contexts work side by side; each ends with a
   bit in DONE and the HOST_DMA interrupt, except posted writes, which are done at once. */
#ifndef TPU_FIRMWARE_DEV_HOSTDMA_H
#define TPU_FIRMWARE_DEV_HOSTDMA_H

#include <stdint.h>

#include "tpu/spec/hostdma_regs.h"

typedef struct hostdma_transfer {
  uint64_t host;  /* iova; DIR_D2D: HBM offset of the source */
  uint64_t local; /* hart address, slot bank offset or HBM offset, by space */
  uint64_t bytes;
  uint32_t pattern; /* DIR_FILL */
  uint32_t control; /* START: direction, space, options */
} hostdma_transfer_t;

#define HOSTDMA_CONTROL(dir, space)                         \
  ((TPU_HOSTDMA_DIR_##dir << TPU_HOSTDMA_START_DIR_SHIFT) | \
   (TPU_HOSTDMA_SPACE_##space << TPU_HOSTDMA_START_SPACE_SHIFT))

void hostdma_start(uint32_t context, const hostdma_transfer_t* transfer);
/* Bits of the contexts that ended since the last call. */
uint32_t hostdma_take_done(void);
/* ERR_* of the context's last transfer, 0 if it was good. Equals the STATUS_* of the same meaning.
 */
uint32_t hostdma_error(uint32_t context);
uint32_t hostdma_crc(uint32_t context);
uint32_t hostdma_entry_bad(uint32_t context);

#endif
