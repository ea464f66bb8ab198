/* seq: see the header. */
#include "dev/seq.h"

#include "dev/mmio.h"

void seq_configure(const seq_setup_t* setup) {
  REG_WRITE(SEQ, PROGRAM_LO, (uint32_t)setup->program);
  REG_WRITE(SEQ, PROGRAM_HI, (uint32_t)(setup->program >> 32));
  REG_WRITE(SEQ, PROGRAM_VERSION, setup->version);
  REG_WRITE(SEQ, SLOT_BANK, setup->slot_bank);
  REG_WRITE(SEQ, SLOT_COUNT, setup->slots);
  REG_WRITE(SEQ, REPLICA, setup->place);
  REG_WRITE(SEQ, CORES, setup->cores);
  REG_WRITE(SEQ, MASK, setup->mask);
  REG_WRITE(SEQ, TAG, setup->launch_id);
  REG_WRITE(SEQ, LAUNCH, setup->launch_id);
  REG_WRITE(SEQ, WATCHDOG_LO, (uint32_t)setup->watchdog_cycles);
  REG_WRITE(SEQ, WATCHDOG_HI, (uint32_t)(setup->watchdog_cycles >> 32));
}

void seq_start(uint32_t step) {
  REG_WRITE(SEQ, STEP, step);
  REG_WRITE(SEQ, START, 1);
}

bool seq_stop(void) {
  uint32_t state = REG_READ(SEQ, STATE);
  const uint32_t code = (state & TPU_SEQ_STATE_CODE_MASK) >> TPU_SEQ_STATE_CODE_SHIFT;
  if (code == TPU_SEQ_STATE_RUNNING) {
    REG_WRITE(SEQ, ABORT, 1);
    return true;
  }
  return (state & TPU_SEQ_STATE_BUSY_MASK) != 0;
}

void seq_reset(void) { REG_WRITE(SEQ, RESET, 1); }

uint32_t seq_take_causes(void) {
  const uint32_t causes = REG_READ(SEQ, IRQ_STATUS);
  REG_WRITE(SEQ, IRQ_STATUS, causes);
  return causes;
}

int32_t seq_check_slots(uint32_t bank, uint32_t count) {
  REG_WRITE(SEQ, SLOT_CHECK,
            (bank << TPU_SEQ_SLOT_CHECK_BANK_SHIFT) | (count << TPU_SEQ_SLOT_CHECK_COUNT_SHIFT));
  const uint32_t result = REG_READ(SEQ, SLOT_RESULT);
  return (result & TPU_SEQ_SLOT_RESULT_BAD_MASK) != 0
             ? (int32_t)((result & TPU_SEQ_SLOT_RESULT_INDEX_MASK) >>
                         TPU_SEQ_SLOT_RESULT_INDEX_SHIFT)
             : -1;
}

uint32_t seq_check_gang(uint32_t bank, uint32_t row, uint32_t rows) {
  REG_WRITE(SEQ, GANG_CHECK,
            (bank << TPU_SEQ_GANG_CHECK_BANK_SHIFT) | (rows << TPU_SEQ_GANG_CHECK_ROWS_SHIFT) |
                (row << TPU_SEQ_GANG_CHECK_ROW_SHIFT));
  return REG_READ(SEQ, GANG_RESULT);
}
