/* The small commands of track LAUNCH: NOP, SET, READ_COUNTERS. All complete at once. */
#include "dev/hostdma.h"
#include "dev/mmio.h"
#include "rt/fw.h"

#define COUNTER_BYTES 8u

static bool all_zero(const uint32_t* words, uint32_t count) {
  uint32_t any = 0;
  for (uint32_t i = 0; i < count; ++i) {
    any |= words[i];
  }
  return any == 0;
}

uint32_t nop_check(const fw_command_t* command) {
  return all_zero(command->nop.reserved, 9) ? TPU_STATUS_OK : TPU_STATUS_BAD_FIELD;
}

uint32_t set_execute(const fw_command_t* command) {
  const tpu_command_set_t* set = &command->set;
  if (!all_zero(set->reserved, 4) || !all_zero(set->reserved2, 3)) {
    return TPU_STATUS_BAD_FIELD;
  }
  switch (set->key) {
    case TPU_SET_TRACE:
      fw.trace = set->value;
      return TPU_STATUS_OK;
    case TPU_SET_WATCHDOG:
      fw.default_watchdog_kcycles = set->value;
      return TPU_STATUS_OK;
    default: /* run-time checks are the board's, not the firmware's */
      return TPU_STATUS_BAD_FIELD;
  }
}

uint32_t read_counters(const fw_command_t* command) {
  const tpu_command_read_counters_t* read = &command->read_counters;
  const uint64_t count = read->bytes / COUNTER_BYTES;
  if (read->reserved != 0 || !all_zero(read->reserved2, 2) || read->bytes % COUNTER_BYTES != 0 ||
      count > FW_COUNTERS || read->first > TPU_PERF_COUNTERS - count) {
    return TPU_STATUS_BAD_FIELD;
  }
  REG_WRITE(PERF, SNAPSHOT, 1);
  for (uint32_t i = 0; i < 2 * (uint32_t)count; ++i) {
    fw.counters[i] = mmio_read32(REG_AT(PERF, COUNTER, 2 * read->first + i));
  }
  const hostdma_transfer_t transfer = {
      .host = read->iova,
      .local = fw_address(fw.counters),
      .bytes = read->bytes,
      .control = HOSTDMA_CONTROL(TO_HOST, TCM),
  };
  _Static_assert(sizeof fw.counters <= TPU_HOSTDMA_POSTED_BYTES, "counters go as a posted write");
  hostdma_start(TPU_HOSTDMA_CTX_COMPLETION, &transfer);
  return hostdma_error(TPU_HOSTDMA_CTX_COMPLETION);
}
