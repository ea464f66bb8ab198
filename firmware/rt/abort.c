/* Faults and aborts: record, stop, wait until the engines are idle, clear, drain with the gang,
   report. A gang whose first step was never released has no traffic in flight, so it does not drain
   together. */
#include "dev/gsync.h"
#include "dev/log.h"
#include "dev/sysctl.h"
#include "rt/fw.h"
#include "tpu/spec/fault_regs.h"

#define RECORD_WORDS (sizeof(tpu_fault_record_t) / 4u)

typedef union record {
  tpu_fault_record_t fields;
  uint32_t words[RECORD_WORDS];
} record_t;

static void write_record(record_t* record) {
  record->fields.fault_seq = ++fw.fault_seq;
  record->fields.core = fw.core;
  record->fields.launch_id = fw.run.launch_id;
  record->fields.step = fw.run.step;
  const bool rows = fw.run_place >> TPU_SEQ_REPLICA_GANG_ROWS_SHIFT != 0;
  record->fields.mask = rows ? 0 : fw.run.mask;
  for (uint32_t i = 0; i < RECORD_WORDS; ++i) {
    mmio_write32(REG_AT(SYSCTL, FAULT_RECORD, i), record->words[i]);
  }
  FW_LOG("launch %u stops at step %u: fault %u, from core %u", record->fields.launch_id,
         record->fields.step, record->fields.code, record->fields.origin);
  REG_WRITE(SYSCTL, FAULT_SEQ, fw.fault_seq);
  fw.run.recorded = 1;
}

/* The record that the engines left. */
static void record_engine_fault(void) {
  record_t record;
  for (uint32_t i = 0; i < RECORD_WORDS; ++i) {
    record.words[i] = mmio_read32(REG_AT(FAULT, RECORD, i));
  }
  REG_WRITE(FAULT, VALID, 1);
  record.fields.origin = fw.core;
  write_record(&record);
}

static void record_own_fault(uint32_t code, uint32_t engine, uint32_t detail, uint32_t origin) {
  record_t record = {.words = {0}};
  record.fields.code = (uint8_t)code;
  record.fields.engine = (uint8_t)engine;
  record.fields.cycle = timer_now();
  record.fields.op_id = TPU_OP_NONE;
  record.fields.detail = detail;
  record.fields.origin = (uint16_t)origin;
  write_record(&record);
}

/* The engines are idle. The origin waits for the echo of its own abort: arriving before it would
   leave a barrier that the abort then breaks. */
static void drain_with_gang(void) {
  if (call_dropped()) {
    return; /* the transfer of a host call ends first: its host memory is the launch's */
  }
  if (fw.run.started && (REG_READ(GSYNC, STATE) & TPU_GSYNC_STATE_ABORTED_MASK) == 0) {
    return;
  }
  seq_reset();
  REG_WRITE(INFEED, WANT, 0);
  if (!fw.run.started) {
    abort_drained(false);
    return;
  }
  fw.run.state = RUN_DRAIN_BARRIER;
  gsync_arrive(TPU_GSYNC_KIND_DRAIN, fw.run.step);
}

static void enter_drain(void) {
  fw.run.state = RUN_DRAIN;
  fw.run.idle = 0;
  if (!seq_stop()) {
    abort_engines_idle();
    return;
  }
  timer_arm(timer_now() + (uint64_t)fw.default_watchdog_kcycles * FW_CYCLES_PER_KCYCLE);
}

/* gsync knows the gang that this core is in. */
static void abort_run(uint32_t code) { gsync_abort(fw.run.launch_id, 0, code); }

/* This core is where the gang fails. `code`: FAULT_NONE if an engine left the record. */
void abort_own_fault(uint32_t code) {
  if (code == TPU_FAULT_NONE) {
    if (fw.run.state == RUN_DRAIN || fw.run.state == RUN_DRAIN_BARRIER) {
      return; /* the first fault of a launch is kept */
    }
    record_engine_fault();
  } else {
    record_own_fault(code, TPU_FAULT_ENGINE_HOST_DMA, 0, fw.core);
  }
  if (fw.run.state == RUN_NONE) {
    fw_hold(); /* remote traffic that belongs to no launch */
    seq_reset();
    return;
  }
  fw.run.origin = 1;
  abort_run(TPU_GSYNC_CODE_FAULT);
  enter_drain();
}

/* What an abort by somebody else is called in this core's record; FAULT: the origin has the record.
 */
static void record_abort(uint32_t info) {
  const uint32_t code = (info & TPU_GSYNC_ABORT_INFO_CODE_MASK) >> TPU_GSYNC_ABORT_INFO_CODE_SHIFT;
  const uint32_t origin =
      (info & TPU_GSYNC_ABORT_INFO_ORIGIN_MASK) >> TPU_GSYNC_ABORT_INFO_ORIGIN_SHIFT;
  switch (code) {
    case TPU_GSYNC_CODE_HOST:
      record_own_fault(TPU_FAULT_HOST_ABORT, TPU_FAULT_ENGINE_HART, 0, origin);
      break;
    case TPU_GSYNC_CODE_NOT_STARTED:
      record_own_fault(TPU_FAULT_NOT_STARTED, TPU_FAULT_ENGINE_HART, 0, origin);
      break;
    case TPU_GSYNC_CODE_MISMATCH:
      record_own_fault(TPU_FAULT_GANG_MISMATCH, TPU_FAULT_ENGINE_HART, TPU_STATUS_GANG_MISMATCH,
                       origin);
      break;
    case TPU_GSYNC_CODE_HART:
      record_own_fault(TPU_FAULT_PEER_LOST, TPU_FAULT_ENGINE_HART, TPU_STATUS_PEER_LOST, origin);
      break;
    default:
      break;
  }
}

void abort_received(void) {
  const uint32_t state = REG_READ(GSYNC, STATE);
  const uint32_t info = REG_READ(GSYNC, ABORT_INFO);
  if ((state & TPU_GSYNC_STATE_ABORTED_MASK) == 0) {
    return; /* of the gang before this one */
  }
  switch (fw.run.state) {
    case RUN_NONE:
      /* A peer failed in its last step, which is complete here: it must not wait for this core. */
      fw_hold();
      fw.run.late = 1;
      fw.run.state = RUN_DRAIN_BARRIER;
      gsync_arrive(TPU_GSYNC_KIND_DRAIN, fw.run.step);
      return;
    case RUN_DRAIN: /* the echo of this core's own abort */
      if (fw.run.idle) {
        drain_with_gang();
      }
      return;
    case RUN_DRAIN_BARRIER:
      return;
    default:
      break;
  }
  if (fw.run.state == RUN_BARRIER && (state & TPU_GSYNC_STATE_RELEASED_MASK) != 0) {
    fw.run.started = 1;
  }
  record_abort(info);
  enter_drain();
}

void abort_engines_idle(void) {
  if (fw.run.state != RUN_DRAIN || fw.run.idle) {
    return;
  }
  timer_disarm();
  fw.run.idle = 1;
  drain_with_gang();
}

void abort_call_moved(void) {
  if (fw.run.state == RUN_DRAIN && fw.run.idle) {
    drain_with_gang();
  }
}

/* The engines did not become idle in time: they are reset all the same. */
void abort_timeout(void) { abort_engines_idle(); }

void abort_drained(bool peer_lost) {
  fw_run_t* run = &fw.run;
  run->state = RUN_NONE;
  fw.dirty = 1;
  REG_WRITE(GSYNC, MASK, 0);
  if (run->late) {
    run->late = 0;
    return;
  }
  if (peer_lost && !run->recorded) {
    record_own_fault(TPU_FAULT_PEER_LOST, TPU_FAULT_ENGINE_HART, TPU_STATUS_PEER_LOST, fw.core);
  }
  fw_complete_launch(run->origin ? TPU_STATUS_FAULT : TPU_STATUS_ABORTED, 0);
}

/* From the trap handler, on its own stack: the rest of the firmware is not trusted any more. */
void fault_record_hart(uint32_t mepc, uint32_t mcause, uint32_t mtval) {
  record_t record = {.words = {0}};
  record.fields.code = TPU_FAULT_FW_TRAP;
  record.fields.engine = TPU_FAULT_ENGINE_HART;
  record.fields.cycle = timer_now();
  record.fields.op_id = TPU_OP_NONE;
  record.fields.hart_mepc = mepc;
  record.fields.hart_mcause = mcause;
  record.fields.hart_mtval = mtval;
  record.fields.origin = fw.core;
  write_record(&record);
  if (fw.run.state != RUN_NONE) {
    abort_run(TPU_GSYNC_CODE_HART);
  }
  sysctl_set_state(TPU_CORE_PAGE_STATE_DEAD, mcause & 0xFFFFu);
  REG_WRITE(SYSCTL, MSI, SYSCTL_MSI_EVENT);
  REG_WRITE(SYSCTL, MSI, SYSCTL_MSI_CHIP);
}
