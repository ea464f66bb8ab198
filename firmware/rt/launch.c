/* LAUNCH: binding (checks, slot table into the idle bank) ahead of time, then n steps, each behind
   a gang barrier. The slot table goes by DMA; the sequencer checks and resolves it, so the cost of
   a launch does not depend on the number of slots. prepare -> start -> { FEED -> BARRIER -> PROGRAM
   } x steps -> completion; abort.c takes over on faults. A gang that core_mask does not hold comes
   with the table: launch_rows() prepares such a launch, so that others pay nothing for it. */
#include <stddef.h>

#include "dev/gsync.h"
#include "dev/hostdma.h"
#include "dev/log.h"
#include "dev/sysctl.h"
#include "rt/fw.h"

/* REPLICA of seq in a launch: replica and gang_rows. */
#define PLACE_WORD (offsetof(tpu_command_launch_t, replica) / 4u)
/* In fw.prep: its table comes, or is there, and its rows are to be checked. */
#define STATUS_ROWS 0xFFFDu

static uint32_t count_bits(uint32_t mask) {
  uint32_t count = 0;
  for (; mask != 0; mask &= mask - 1u) {
    ++count;
  }
  return count;
}

static uint32_t check_launch(const tpu_command_launch_t* launch) {
  const uint32_t mask = launch->core_mask;
  if (launch->program_id >= TPU_MAX_PROGRAMS || launch->slots > TPU_MAX_SLOTS ||
      launch->steps == 0 || launch->gang_rows != 0 || launch->launch_id == 0 ||
      ((mask >> fw.mask_bit) & 1u) == 0 || (mask >> fw.last_bit >> 1) != 0) {
    return TPU_STATUS_BAD_FIELD;
  }
  const fw_program_t* program = &fw.programs[launch->program_id];
  if (!program->loaded) {
    return TPU_STATUS_NO_PROGRAM;
  }
  if (program->cores != count_bits(mask) || launch->replica >= program->cores) {
    return TPU_STATUS_BAD_FIELD;
  }
  return launch->slots < program->slots ? TPU_STATUS_NO_SLOT : TPU_STATUS_OK;
}

/* Checks the launch and sends for its slot table. The context and the idle bank are free. */
static void prepare(uint32_t seq) {
  const tpu_command_launch_t* launch = &command_at(seq)->launch;
  fw.prep.seq = seq;
  fw.prep.bank = fw.run.bank ^ 1u;
  fw.prep.status = (uint16_t)check_launch(launch);
  fw.prep.state = PREP_DONE;
  if (fw.prep.status != TPU_STATUS_OK || launch->slots == 0) {
    return;
  }
  const hostdma_transfer_t transfer = {
      .host = launch->table_iova,
      .local = fw.prep.bank * TPU_SLOT_BANK_BYTES,
      .bytes = (uint32_t)launch->slots * sizeof(tpu_slot_entry_t),
      .control = HOSTDMA_CONTROL(FROM_HOST, SLOTS) | TPU_HOSTDMA_START_CRC_MASK,
  };
  fw.prep.state = PREP_FETCHING;
  hostdma_start(TPU_HOSTDMA_CTX_TABLE, &transfer);
}

void launch_table_done(void) {
  if (fw.prep.state != PREP_FETCHING) {
    return;
  }
  fw.dirty = 1;
  if (fw.prep.dropped) {
    fw.prep.dropped = 0;
    fw.prep.state = PREP_NONE;
    return;
  }
  const tpu_command_launch_t* launch = &command_at(fw.prep.seq)->launch;
  fw.prep.state = PREP_DONE;
  const uint32_t error = hostdma_error(TPU_HOSTDMA_CTX_TABLE);
  if (error != 0) {
    fw.prep.status = (uint16_t)error;
  } else if (hostdma_crc(TPU_HOSTDMA_CTX_TABLE) != launch->table_crc ||
             seq_check_slots(fw.prep.bank, launch->slots) >= 0) {
    fw.prep.status = TPU_STATUS_NO_SLOT;
  }
}

void launch_prefetch(void) {
  uint32_t seq;
  if (fw.held || fw.prep.state != PREP_NONE || !track_next_launch(&seq)) {
    return;
  }
  /* What runs in front of it may still register its program. */
  if (fw.active[TPU_TRACK_LAUNCH] && !fw.launch_active) {
    return;
  }
  const fw_command_t* command = command_at(seq);
  if (entry_at(seq)->status == TPU_STATUS_OK && command->head.opcode == TPU_OP_LAUNCH &&
      command->head.epoch == fw.epoch) {
    prepare(seq);
  }
}

/* A launch that will not run, for whatever reason: its gang must not wait for this core. */
void launch_refused(const fw_command_t* command, uint32_t seq) {
  if (fw.prep.state != PREP_NONE && fw.prep.seq == seq) {
    if (fw.prep.state == PREP_FETCHING) {
      fw.prep.dropped = 1;
    } else {
      fw.prep.state = PREP_NONE;
    }
  }
  const uint32_t mask = command->launch.core_mask;
  if (command->launch.gang_rows != 0) {
    if (mask != 0 && mask - 1u < fw.cores) {
      gsync_abort_at(command->launch.launch_id, mask - 1u, TPU_GSYNC_CODE_NOT_STARTED);
    }
  } else if ((mask & ~(1u << fw.mask_bit)) != 0) {
    gsync_abort(command->launch.launch_id, mask, TPU_GSYNC_CODE_NOT_STARTED);
  }
}

static void bind(uint32_t seq) {
  const tpu_command_launch_t* launch = &command_at(seq)->launch;
  const fw_program_t* program = &fw.programs[launch->program_id];
  const uint32_t kcycles =
      launch->watchdog_kcycles != 0 ? launch->watchdog_kcycles : fw.default_watchdog_kcycles;
  fw_run_t* run = &fw.run;
  run->seq = seq;
  run->launch_id = launch->launch_id;
  run->step = 0;
  run->steps = launch->steps;
  run->watchdog_cycles = (uint64_t)kcycles * FW_CYCLES_PER_KCYCLE;
  run->flags = launch->head.flags;
  run->mask = launch->core_mask;
  run->started = run->origin = run->recorded = 0;
  run->bank = fw.prep.bank;
  fw.run_place = command_at(seq)->words[PLACE_WORD];
  const seq_setup_t setup = {
      .program = program->hbm,
      .version = program->version,
      .slot_bank = fw.prep.bank,
      .slots = launch->slots,
      .place = fw.run_place,
      .cores = program->cores,
      .mask = launch->core_mask,
      .launch_id = launch->launch_id,
      .watchdog_cycles = run->watchdog_cycles,
  };
  FW_LOG("launch %u bound: program %u, %u slots, cores %#x, %u steps", run->launch_id,
         launch->program_id, launch->slots, run->mask, run->steps);
  seq_configure(&setup);
  gsync_join(run->launch_id, run->mask);
}

/* What can be told of a gang with rows before these are there. */
static uint32_t check_before_rows(const tpu_command_launch_t* launch) {
  if (launch->program_id >= TPU_MAX_PROGRAMS || launch->gang_rows > TPU_GANG_ROWS ||
      launch->slots + launch->gang_rows > TPU_MAX_SLOTS || launch->steps == 0 ||
      launch->launch_id == 0 || launch->core_mask == 0 || launch->core_mask - 1u > fw.core) {
    return TPU_STATUS_BAD_FIELD;
  }
  if (!fw.programs[launch->program_id].loaded) {
    return TPU_STATUS_NO_PROGRAM;
  }
  if (fw.program_cores[launch->program_id] <= launch->replica) {
    return TPU_STATUS_BAD_FIELD;
  }
  return launch->slots < fw.programs[launch->program_id].slots ? TPU_STATUS_NO_SLOT : TPU_STATUS_OK;
}

/* Goes on with a launch whose preparation has ended with another status than OK: that status,
   unless it is a gang with rows. */
static __attribute__((noinline)) uint32_t launch_rows(uint32_t seq) {
  const tpu_command_launch_t* launch = &command_at(seq)->launch;
  if (fw.prep.status == STATUS_ROWS) {
    const uint32_t wanted =
        ((uint32_t)fw.program_cores[launch->program_id] << TPU_SEQ_GANG_RESULT_CORES_SHIFT) |
        ((launch->core_mask - 1u) << TPU_SEQ_GANG_RESULT_ROOT_SHIFT);
    return seq_check_gang(fw.prep.bank, launch->slots, launch->gang_rows) == wanted
               ? TPU_STATUS_OK
               : TPU_STATUS_BAD_FIELD;
  }
  if (launch->gang_rows == 0 || fw.prep.status != TPU_STATUS_BAD_FIELD) {
    return fw.prep.status;
  }
  const uint32_t status = check_before_rows(launch);
  if (status != TPU_STATUS_OK) {
    return status;
  }
  const hostdma_transfer_t transfer = {
      .host = launch->table_iova,
      .local = fw.prep.bank * TPU_SLOT_BANK_BYTES,
      .bytes = ((uint32_t)launch->slots + launch->gang_rows) * sizeof(tpu_slot_entry_t),
      .control = HOSTDMA_CONTROL(FROM_HOST, SLOTS) | TPU_HOSTDMA_START_CRC_MASK,
  };
  fw.prep.status = STATUS_ROWS;
  fw.prep.state = PREP_FETCHING;
  hostdma_start(TPU_HOSTDMA_CTX_TABLE, &transfer);
  return FW_WAIT;
}

uint32_t launch_start(uint32_t seq) {
  if (fw.run.state != RUN_NONE || fw.prep.state == PREP_FETCHING) {
    return FW_WAIT;
  }
  if (fw.prep.state == PREP_NONE || fw.prep.seq != seq) {
    prepare(seq);
    if (fw.prep.state == PREP_FETCHING) {
      return FW_WAIT;
    }
  }
  fw.prep.state = PREP_NONE;
  if (fw.prep.status != TPU_STATUS_OK) {
    const uint32_t status = launch_rows(seq);
    if (status != TPU_STATUS_OK) {
      return status;
    }
  }
  bind(seq);
  fw.run.state = RUN_FEED;
  launch_step_ready();
  return FW_PENDING;
}

/* RUN_FEED: arrives at the step's barrier when its batch is there and an output slot is free. */
void launch_step_ready(void) {
  const bool infeed = (fw.run.flags & TPU_CMD_FLAG_INFEED) != 0;
  const bool outfeed = (fw.run.flags & TPU_CMD_FLAG_OUTFEED) != 0;
  if ((infeed && fw.infeed_full == fw.infeed_free) ||
      (outfeed && fw.outfeed_full - fw.outfeed_free >= TPU_INFEED_DEPTH)) {
    if (fw.held) {
      abort_own_fault(TPU_FAULT_HOST_DMA); /* the copies that it waits for were flushed */
    } else if (infeed) {
      REG_WRITE(INFEED, WANT, fw.infeed_free + 1u);
    }
    return;
  }
  if (infeed) {
    REG_WRITE(INFEED, WANT, 0);
  }
  fw.run.state = RUN_BARRIER;
  gsync_arrive(TPU_GSYNC_KIND_STEP, fw.run.step);
}

void launch_released(void) {
  const uint32_t state = REG_READ(GSYNC, STATE);
  const bool released = (state & TPU_GSYNC_STATE_RELEASED_MASK) != 0;
  const bool lost = (state & TPU_GSYNC_STATE_PEER_LOST_MASK) != 0;
  if (fw.run.state == RUN_BARRIER && released) {
    fw.run.started = 1;
    if ((state & TPU_GSYNC_STATE_ABORTED_MASK) == 0) {
      fw.run.state = RUN_PROGRAM;
      FW_LOG("launch %u step %u starts", fw.run.launch_id, fw.run.step);
      seq_start(fw.run.step);
    }
  } else if (fw.run.state == RUN_DRAIN_BARRIER && (released || lost)) {
    abort_drained(lost);
  }
}

static void step_done(void) {
  fw_run_t* run = &fw.run;
  FW_LOG("launch %u step %u done", run->launch_id, run->step);
  ++run->step;
  fw.dirty |= (run->flags & (TPU_CMD_FLAG_INFEED | TPU_CMD_FLAG_OUTFEED)) != 0;
  if ((run->flags & TPU_CMD_FLAG_INFEED) != 0) {
    ++fw.infeed_free;
    REG_WRITE(INFEED, POP, 1);
  }
  if ((run->flags & TPU_CMD_FLAG_OUTFEED) != 0) {
    ++fw.outfeed_full;
  }
  if (run->step == run->steps) {
    run->state = RUN_NONE;
    fw_complete_launch(TPU_STATUS_OK, TPU_CPL_FLAG_STEP | TPU_CPL_FLAG_LAST_STEP);
    return;
  }
  if ((run->flags & TPU_CMD_FLAG_OUTFEED) != 0) {
    ring_post(run->seq, TPU_STATUS_OK, TPU_CPL_FLAG_MORE | TPU_CPL_FLAG_STEP, run->step,
              (run->flags & TPU_CMD_FLAG_INTERRUPT) != 0);
  }
  run->state = RUN_FEED;
  launch_step_ready();
}

void launch_program_event(void) {
  const uint32_t causes = seq_take_causes();
  if ((causes & TPU_SEQ_IRQ_STATUS_FAULT_MASK) != 0) {
    abort_own_fault(TPU_FAULT_NONE);
  }
  if ((causes & TPU_SEQ_IRQ_STATUS_DRAINED_MASK) != 0) {
    abort_engines_idle();
  }
  if ((causes & TPU_SEQ_IRQ_STATUS_DONE_MASK) != 0) {
    if (fw.run.state == RUN_PROGRAM) {
      step_done();
    } else if (fw.run.state == RUN_MOVING) {
      abort_own_fault(TPU_FAULT_HOST_DMA); /* the program has not waited for its transfer */
    }
  }
}
