/* State of the firmware and the calls between its parts. One core, one hart, one ring pair.
   Everything is an event-driven state machine: a handler never waits, it leaves a state behind and
   the interrupt that ends the wait brings the next call. No heap, no recursion, no division.

     main loop -> fw_dispatch(irq sources) -> ring / copy / launch / program handlers
               -> fw_progress()

   Rings, commands and statuses: spec/formats/rings.toml. */
#ifndef TPU_FIRMWARE_RT_FW_H
#define TPU_FIRMWARE_RT_FW_H

#include <stdbool.h>
#include <stdint.h>

#include "dev/seq.h"
#include "tpu/spec/perf_regs.h"
#include "tpu/spec/rings.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FW_TRACKS 3u
#define FW_WINDOW_MASK (TPU_CMD_WINDOW - 1u)
#define FW_CYCLES_PER_KCYCLE 1024u
/* Of one READ_COUNTERS: all, on a board of two matrix units. */
#define FW_COUNTERS TPU_PERF_MXU2_BUSY_CYCLES

/* What starting a command returns beside STATUS_*. */
#define FW_PENDING 0xFFFEu /* started; fw_complete() follows */
#define FW_WAIT 0xFFFFu    /* cannot start yet; tried again after the next event */

typedef union fw_command {
  tpu_command_head_t head;
  tpu_command_load_t load;
  tpu_command_unload_t unload;
  tpu_command_launch_t launch;
  tpu_command_copy_t copy;
  tpu_command_fill_t fill;
  tpu_command_read_counters_t read_counters;
  tpu_command_nop_t nop;
  tpu_command_set_t set;
  uint32_t words[TPU_CMD_ENTRY_BYTES / 4];
} fw_command_t;

typedef enum fw_entry_state { ENTRY_QUEUED, ENTRY_RUNNING, ENTRY_DONE } fw_entry_state_t;

typedef struct fw_entry {
  uint8_t track;
  uint8_t state;   /* fw_entry_state_t */
  uint16_t status; /* STATUS_OK, or why it may not run (found when it was fetched) */
} fw_entry_t;

typedef struct fw_program {
  uint64_t hbm;     /* offset of the image; a multiple of SLOT_ALIGN */
  uint32_t version; /* counts loads */
  uint16_t slots;
  uint8_t cores; /* at most 255: masks have fewer */
  uint8_t loaded;
} fw_program_t;

/* The launch that is bound next: its slot table goes into the idle bank. */
typedef enum prep_state { PREP_NONE, PREP_FETCHING, PREP_DONE } prep_state_t;
typedef struct fw_prep {
  uint32_t seq;
  uint8_t state;   /* prep_state_t */
  uint8_t dropped; /* flushed while its table was on the way */
  uint8_t bank;
  uint16_t status; /* PREP_DONE: STATUS_OK or why it is refused */
} fw_prep_t;

/* The launch that runs. */
typedef enum run_state {
  RUN_NONE,
  RUN_FEED,          /* waits for an infeed batch or an outfeed slot */
  RUN_BARRIER,       /* arrived in front of a step */
  RUN_PROGRAM,       /* the sequencer runs */
  RUN_MOVING,        /* the sequencer runs, and so does a transfer of a host call */
  RUN_DRAIN,         /* aborted: engines not idle yet */
  RUN_DRAIN_BARRIER, /* aborted: waits for the gang */
} run_state_t;
typedef struct fw_run {
  uint32_t seq;
  uint32_t launch_id; /* also the gang's tag */
  uint32_t step;
  uint32_t steps;
  uint64_t watchdog_cycles;
  uint32_t mask;
  uint16_t flags;   /* CMD_FLAG_* */
  uint8_t state;    /* run_state_t */
  uint8_t started;  /* step 0 was released: the gang must drain together */
  uint8_t origin;   /* this core found the fault */
  uint8_t recorded; /* a fault record was written for this launch */
  uint8_t idle;     /* RUN_DRAIN: the engines are idle, the abort has not come back */
  uint8_t late;     /* drains a gang whose launch is completed here */
  uint8_t bank;     /* slot bank of the last launch */
} fw_run_t;

/* Host calls of the launch: at most one that the program waits at, and one transfer. */
typedef struct fw_call {
  uint32_t ticket; /* completions written, the one that told of the open call included */
  uint32_t taken;  /* ticket of the last transfer; of none: the one in front of the first call's */
  uint32_t launch; /* launch_id */
  uint8_t open;    /* the program waits for the host's answer */
  uint8_t moving;  /* a transfer runs, in context SPARE; the program may have ended meanwhile */
} fw_call_t;

typedef struct fw_core {
  /* Targets of host DMA: commands land here, completions and counters leave from here. */
  fw_command_t window[TPU_CMD_WINDOW];
  tpu_completion_t completion;
  uint32_t counters[2 * FW_COUNTERS];

  fw_entry_t entry[TPU_CMD_WINDOW];
  fw_program_t programs[TPU_MAX_PROGRAMS];

  uint64_t cmd_base;
  uint64_t cpl_base;
  uint32_t cmd_mask; /* entries - 1 */
  uint32_t cpl_log2;
  uint32_t fetched;         /* commands fetched: absolute count */
  uint32_t fetching;        /* commands of the fetch under way */
  uint32_t oldest;          /* first command that is not done */
  uint32_t cpl_tail;        /* completions written: absolute count */
  uint32_t next[FW_TRACKS]; /* where the search for a track's next command goes on */
  uint32_t done[FW_TRACKS]; /* commands completed since the last resume */
  uint32_t active_seq[FW_TRACKS];
  uint8_t active[FW_TRACKS];
  uint8_t launch_active; /* what track LAUNCH runs is a LAUNCH: state in `run`, not in the window */

  uint8_t dirty;        /* something changed that a waiting command may wait for */
  uint8_t serving;      /* rings are set up */
  uint8_t held;         /* after a failed command, until RESUME */
  uint8_t fetch_failed; /* the command ring cannot be read */
  /* Masks name the first cores: those of this core's have `mask_bit`, and none above `last_bit`. A
     core without a bit has a pair that no mask fits. */
  uint8_t mask_bit;
  uint8_t last_bit;
  uint32_t state; /* last STATE_* written */
  uint32_t epoch;
  uint32_t resume; /* last RESUME seen */
  uint32_t heartbeat;
  uint32_t fault_seq;
  uint32_t loads;
  uint32_t default_watchdog_kcycles;
  uint32_t trace; /* SET_TRACE */

  /* Batches and outputs since the last resume; differences are what counts. */
  uint32_t infeed_full;
  uint32_t infeed_free;
  uint32_t outfeed_full;
  uint32_t outfeed_free;

  fw_prep_t prep;
  fw_run_t run;
  fw_call_t call;

  uint32_t run_place; /* of `run`: REPLICA of seq, which a reset clears */
  uint16_t core;
  uint16_t cores;
  uint16_t program_cores[TPU_MAX_PROGRAMS]; /* of loaded programs */
} fw_t;

#ifdef TPU_FW_HOST
/* A process holds many cores: `fw` is the one that the calling thread works for
   (fake/firmware_on_host.hpp). */
extern __thread fw_t* fw_of_thread;
#define fw (*fw_of_thread)
#else
extern fw_t fw;
#endif

static inline fw_command_t* command_at(uint32_t seq) { return &fw.window[seq & FW_WINDOW_MASK]; }
static inline fw_entry_t* entry_at(uint32_t seq) { return &fw.entry[seq & FW_WINDOW_MASK]; }
static inline bool reached(uint32_t count, uint32_t wanted) {
  return (int32_t)(count - wanted) >= 0;
}
/* Hart address of a member of `fw`, for DMA. */
uint64_t fw_address(const void* member);

/* fw.c */
void fw_boot(uint32_t build);
void fw_dispatch(uint32_t sources);
void fw_hold(void);

/* ring.c */
void ring_open(void);
void ring_fetch(void);
void ring_fetched(void);
void ring_post(uint32_t seq, uint32_t status, uint32_t flags, uint32_t step, bool interrupt);

/* track.c */
void fw_complete(uint32_t seq, uint32_t status);
/* As fw_complete for the launch in `run`, whose window entry is free for others since it was bound.
 */
void fw_complete_launch(uint32_t status, uint32_t flags);
/* Starts or flushes whatever can be. */
void track_pump(void);
/* First command of track LAUNCH that has not been started; false: none fetched. */
bool track_next_launch(uint32_t* seq);

/* copy.c: COPY and FILL. */
uint32_t copy_start(uint32_t seq);
uint32_t fill_start(uint32_t seq);
void copy_done(uint32_t track);

/* program.c: LOAD_PROGRAM, UNLOAD_PROGRAM. */
uint32_t program_load(uint32_t seq);
void program_loaded(void);
uint32_t program_unload(uint32_t seq);

/* small_commands.c: NOP, SET, READ_COUNTERS. */
uint32_t nop_check(const fw_command_t* command);
uint32_t set_execute(const fw_command_t* command);
uint32_t read_counters(const fw_command_t* command);

/* launch.c */
uint32_t launch_start(uint32_t seq);
void launch_prefetch(void);
void launch_table_done(void);
void launch_refused(const fw_command_t* command, uint32_t seq);
void launch_step_ready(void);
void launch_released(void);
void launch_program_event(void);

/* call.c */
void call_raised(void);
void call_requested(void);
void call_moved(void);
/* The program was stopped. True: a transfer still runs, and call_moved() goes on with the drain. */
bool call_dropped(void);

/* abort.c */
void abort_own_fault(uint32_t code);
void abort_received(void);
void abort_engines_idle(void);
void abort_call_moved(void);
void abort_timeout(void);
void abort_drained(bool peer_lost);
void fault_record_hart(uint32_t mepc, uint32_t mcause, uint32_t mtval);

#ifdef __cplusplus
}
#endif
#endif
