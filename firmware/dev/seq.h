/* seq: set-up, start and stop of the sequencer, and its interrupt causes. */
#ifndef TPU_FIRMWARE_DEV_SEQ_H
#define TPU_FIRMWARE_DEV_SEQ_H

#include <stdbool.h>
#include <stdint.h>

#include "tpu/spec/seq_regs.h"

typedef struct seq_setup {
  uint64_t program; /* HBM offset of the image */
  uint32_t version; /* differs when the image at this offset changed */
  uint32_t slot_bank;
  uint32_t slots;
  uint32_t place; /* REPLICA */
  uint32_t cores;
  uint32_t mask;
  uint32_t launch_id; /* also the tag of remote packets */
  uint64_t watchdog_cycles;
} seq_setup_t;

void seq_configure(const seq_setup_t* setup);
void seq_start(uint32_t step);
/* False, and no DRAINED will come, when nothing runs and all engines are idle. */
bool seq_stop(void);
void seq_reset(void);
/* Causes since the last call: TPU_SEQ_IRQ_STATUS_*_MASK. */
uint32_t seq_take_causes(void);
/* Index of the first bad slot, or -1. */
int32_t seq_check_slots(uint32_t bank, uint32_t count);
/* GANG_RESULT of so many rows from entry `row` on; 0: no gang of this core. */
uint32_t seq_check_gang(uint32_t bank, uint32_t row, uint32_t rows);

#endif
