/* gsync: gang barrier and abort. */
#ifndef TPU_FIRMWARE_DEV_GSYNC_H
#define TPU_FIRMWARE_DEV_GSYNC_H

#include <stdint.h>

#include "dev/mmio.h"
#include "tpu/spec/gsync_regs.h"

/* Enters a gang; forgets an abort of an earlier one. */
static inline void gsync_join(uint32_t tag, uint32_t mask) {
  REG_WRITE(GSYNC, TAG, tag);
  REG_WRITE(GSYNC, MASK, mask);
}

static inline void gsync_arrive(uint32_t kind, uint32_t step) {
  REG_WRITE(GSYNC, STEP, step);
  REG_WRITE(GSYNC, ARRIVE, kind);
}

/* For a gang with rows that this core has not entered: its root tells those who have. */
static inline void gsync_abort_at(uint32_t tag, uint32_t root, uint32_t code) {
  REG_WRITE(GSYNC, ABORT_TAG, tag);
  REG_WRITE(GSYNC, ABORT_MASK, 0);
  REG_WRITE(GSYNC, ABORT_ROOT, root);
  REG_WRITE(GSYNC, ABORT, code);
}

static inline void gsync_abort(uint32_t tag, uint32_t mask, uint32_t code) {
  REG_WRITE(GSYNC, ABORT_TAG, tag);
  REG_WRITE(GSYNC, ABORT_MASK, mask);
  REG_WRITE(GSYNC, ABORT, code);
}

#endif
