/* C interface of tpuboard, for programs in C and for bindings of other languages: the board of
 * this process, compiling StableHLO artifacts, running them on the board's cores, its clock and
 * its counters. It lives in libtpuboard_pjrt.so, so that a program that uses JAX on the board
 * reaches the same board (a process has one).
 *
 * Status: a call that can fail returns a tpu_status, 0 for success. tpu_error_message() then
 * says what is wrong. A call that fails has changed nothing, and has not written what it would
 * have given. A null pointer where one is needed is TPU_INVALID_ARGUMENT.
 * Handles: what a call gives through a `tpu_thing** out` belongs to the caller, who ends it with
 * tpu_thing_destroy() (null is allowed), at any time and in any order; work in flight is not
 * disturbed. Pointers inside of a struct that a call fills point into the handle and end with
 * it.
 * Threads: all calls may come from any thread; the same handle may be used by several at a time,
 * but for destroying it.
 * Time: simulated time is counted in cycles of the core clock (tpu_board_info). It passes while
 * work is under way.
 * Structs begin with their size as the caller knows it, so that later versions can append
 * fields: set `struct_size` to sizeof of the struct, all else to 0, before use.
 * Options of the board are environment variables TPUBOARD_* (docs/jax.md), read when it is
 * opened. */
#ifndef TPU_TPU_H_
#define TPU_TPU_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ------------------------------------------------------------------------------- */

/* Meanings: host_driver/include/tpu/error.hpp. */
typedef enum tpu_status {
  TPU_OK = 0,
  TPU_INVALID_ARGUMENT = 1,
  TPU_FAILED_PRECONDITION = 2,
  TPU_UNIMPLEMENTED = 3,
  TPU_RESOURCE_EXHAUSTED = 4,
  TPU_CANCELLED = 5,
  TPU_UNAVAILABLE = 6,
  TPU_DEVICE_FAULT = 7,
  TPU_TIMEOUT = 8,
  TPU_INTERNAL = 9,
  TPU_DATA_LOSS = 10
} tpu_status;

/* "0.1.0" */
const char* tpu_version(void);
/* "InvalidArgument", ... */
const char* tpu_status_name(tpu_status status);
/* Text of the last failure in this thread: what is wrong, device, op and source line where
 * known. Valid until the next failure in this thread; "" when there was none. */
const char* tpu_error_message(void);

/* ---- Board -------------------------------------------------------------------------------- */

typedef struct tpu_board_info {
  size_t struct_size;
  const char* name;      /* of the board file: "v3_8"; valid until the process ends */
  uint32_t device_count; /* cores; devices are 0 .. device_count - 1 */
  uint32_t
      counter_count; /* of one core, those included that this board's cores lack (they stay 0) */
  double clock_hz;   /* core cycles a second */
  uint64_t peak_flops_per_cycle; /* matmul operations of one core */
} tpu_board_info;

typedef struct tpu_device_info {
  size_t struct_size;
  int32_t chip, core;     /* core of the chip */
  int32_t x, y;           /* coordinates of the chip in the torus */
  uint64_t hbm_bytes;     /* all of the core */
  uint64_t hbm_used;      /* by arrays and programs */
  uint64_t hbm_peak;      /* most that was in use at a time */
  uint64_t hbm_free_part; /* largest array that fits */
} tpu_device_info;

/* What the checks of the simulation found so far (TPUBOARD_MXU=..=lockstep, TPUBOARD_VERILOG,
 * TPUBOARD_CHECK). */
typedef struct tpu_checks {
  size_t struct_size;
  uint64_t lockstep_tiles;      /* matmul tiles that went through the Verilog too */
  uint64_t lockstep_mismatches; /* differences from the Verilog, failed assertions in it too */
  uint64_t check_findings;      /* accesses of core programs that nothing orders */
  uint64_t lockstep_semaphores; /* values of semaphores compared (TPUBOARD_VERILOG=..=lockstep) */
  uint64_t lockstep_transfers;  /* transfers of DMA queues compared */
} tpu_checks;

/* Opens the board; nothing happens when it is open. All other calls that need a board open it
 * too. */
tpu_status tpu_board_open(void);
/* 1 once the board of this process is open, by this interface or by JAX. */
int tpu_board_is_open(void);
tpu_status tpu_get_board_info(tpu_board_info* info);
tpu_status tpu_get_device_info(int32_t device, tpu_device_info* info);
/* Simulated time in core cycles. */
tpu_status tpu_board_now(uint64_t* cycles);
/* Waits until everything that was submitted is over, JAX's work too; for at most that much host
 * time (negative: for as long as it takes), then TPU_TIMEOUT, and everything goes on as before.
 * Failures stay with their events. */
tpu_status tpu_board_synchronize(int64_t timeout_ns);

/* Name of a counter; null when there is no such counter. The registers of block perf ("mxu_flops";
 * docs/registers.md) come first, then the cycles since reset by what a core did: "time_compute",
 * "time_links", "time_hbm", "time_stalled", and with no program running "time_input" and
 * "time_host" (docs/monitor.md, "Metrics"; all 0 where a transport does not count them). */
const char* tpu_counter_name(uint32_t counter);
/* One snapshot of all counters: values[device * counter_count + counter], `capacity` values at
 * least that many. `cycles` is the simulated time of the snapshot; it and `checks` may be null.
 * Taking it costs some simulated time. */
tpu_status tpu_board_counters(uint64_t* values, size_t capacity, uint64_t* cycles,
                              tpu_checks* checks);

/* Changes options of the open board: `variables` are names of the environment, TPUBOARD_MXU,
 * TPUBOARD_TRACE, TPUBOARD_WAVES, TPUBOARD_WAVES_STEPS (_SCOPE, _TRIGGER, _FOR, _BEFORE),
 * TPUBOARD_TIMELINE, TPUBOARD_TIMELINE_STEPS, TPUBOARD_RECORD, TPUBOARD_RECORD_STEPS,
 * TPUBOARD_OP_TIMES, `values` what they would be set to; "" is as if one were not set. Waits until
 * everything submitted is over. Waves without TPUBOARD_WAVES_STEPS, _TRIGGER and _BEFORE are of all
 * steps from then on, until they are changed again.
 * TPU_FAILED_PRECONDITION: another variable (nothing has changed), or waves, a trace, a record or
 * lockstep that this ends were not complete or showed nothing (all is as it was asked for). */
tpu_status tpu_board_change(const char* const* variables, const char* const* values, size_t count);

/* Where cores spent the time of programs: one operation of one program, all cores and launches
 * together. Each cycle of a step belongs to one operation: of those with commands under way, to
 * that of the foremost engine (matrix units, vector unit, XLU, transfers to other cores, in, out),
 * so that the cycles of a program sum to its run time. */
typedef struct tpu_op_time {
  size_t struct_size;
  const char* program;
  const char* op;     /* name in the graph; "": cycles in which no command was under way */
  const char* source; /* "file:line"; "": unknown */
  uint64_t cycles;
  uint64_t busy_cycles; /* with a command of it under way, hidden ones too */
  uint64_t commands;    /* that engines have done for it */
} tpu_op_time;

/* A snapshot of them, as of the launches that are over. */
typedef struct tpu_op_times tpu_op_times;

/* What was counted since TPUBOARD_OP_TIMES was last set to 1; nothing while it never was. */
tpu_status tpu_board_op_times(tpu_op_times** out);
uint32_t tpu_op_times_count(const tpu_op_times* times);
tpu_status tpu_op_times_get(const tpu_op_times* times, uint32_t index, tpu_op_time* time);
void tpu_op_times_destroy(tpu_op_times* times);

/* Why the step of a record waits (TPUBOARD_RECORD, `tpuboard run --record`), as the HTML page that
 * `tpuboard report` writes: `page` is replaced. `changes`: how many changes that would shorten the
 * step are looked for, which takes most of the time. Needs no board.
 * TPU_INVALID_ARGUMENT: the record cannot be read or is damaged; TPU_FAILED_PRECONDITION: the page
 * cannot be written, or the step has more commands than a record holds. */
tpu_status tpu_write_report(const char* record, const char* page, uint32_t changes);

/* ---- Programs ----------------------------------------------------------------------------- */

/* Element types; i1 is one byte 0 or 1, bf16 the upper half of an f32, a complex64 its real and its
 * imaginary part, f32 each, f64 IEEE binary64. All little-endian. */
typedef enum tpu_dtype {
  TPU_F32 = 0,
  TPU_BF16 = 1,
  TPU_I32 = 2,
  TPU_U32 = 3,
  TPU_I8 = 4,
  TPU_U8 = 5,
  TPU_I1 = 6,
  TPU_I16 = 7,
  TPU_U16 = 8,
  TPU_I64 = 9,
  TPU_U64 = 10,
  TPU_C64 = 11,
  TPU_F64 = 12
} tpu_dtype;

/* A compiled program, on no core yet. */
typedef struct tpu_program tpu_program;

typedef enum tpu_update_sharding {
  TPU_UPDATE_SHARDING_AUTO =
      0, /* each core updates its part of replicated state where that is faster */
  TPU_UPDATE_SHARDING_OFF = 1, /* every core updates all of a replicated array */
  TPU_UPDATE_SHARDING_ON = 2   /* wherever it is legal */
} tpu_update_sharding;

typedef struct tpu_compile_options {
  size_t struct_size;
  const char* name; /* of the program; null: "main" */
  tpu_update_sharding update_sharding;
  const int32_t* cores; /* core of each partition, each another one; null and 0: 0, 1, .. */
  size_t core_count;
} tpu_compile_options;

/* What a program is, and what one core does in one step. */
typedef struct tpu_program_info {
  size_t struct_size;
  const char* name;
  uint32_t partitions; /* cores that run it together */
  uint32_t argument_count, result_count;
  uint32_t note_count; /* remarks of the compiler; what it moves between cores */
  uint64_t estimated_cycles;
  uint64_t matmul_flops;                      /* logical 2*M*K*N, without padding */
  uint64_t vector_ops;                        /* elements of whole blocks */
  uint64_t hbm_read_bytes, hbm_written_bytes; /* by commands, in granules of the DMA engine */
  uint64_t link_bytes;                        /* sent to other cores */
  uint64_t vmem_peak_bytes;                   /* most of VMEM at a time */
  uint64_t hbm_bytes;                         /* arguments, results, constants, scratch memory */
} tpu_program_info;

/* An argument or result. Partition p holds the box of `local_shape` at offsets[p * rank ..] of
 * the global array. */
typedef struct tpu_parameter {
  size_t struct_size;
  const char* name;
  tpu_dtype dtype;
  int32_t donated_to; /* arguments: the result that takes over the memory; -1: none */
  size_t rank;
  const int64_t* shape;       /* global */
  const int64_t* local_shape; /* of each core */
  const int64_t* offsets;     /* partitions * rank of them */
  int32_t replicated;         /* every core has the whole array */
} tpu_parameter;

/* Compiles a StableHLO portable artifact (jax.export: Exported.mlir_module_serialized) for this
 * process' board, or takes it from the cache (TPUBOARD_CACHE); `options` may be null. Lets no
 * simulated time pass. TPU_UNIMPLEMENTED names the op and its source line. */
tpu_status tpu_compile(const void* artifact, size_t bytes, const tpu_compile_options* options,
                       tpu_program** out);
/* From the bytes of a .tpuexe file, as tpuc and tpu_program_bytes() make them. */
tpu_status tpu_program_read(const void* file, size_t bytes, tpu_program** out);
/* The program as a .tpuexe file; valid as long as the program. */
tpu_status tpu_program_bytes(const tpu_program* program, const void** data, size_t* bytes);
tpu_status tpu_get_program_info(const tpu_program* program, tpu_program_info* info);
tpu_status tpu_program_argument(const tpu_program* program, uint32_t index,
                                tpu_parameter* parameter);
tpu_status tpu_program_result(const tpu_program* program, uint32_t index, tpu_parameter* parameter);
/* Core for which partition `partition` was compiled; -1 when there is no such partition. */
int32_t tpu_program_core(const tpu_program* program, uint32_t partition);
/* Null when there is no such note. */
const char* tpu_program_note(const tpu_program* program, uint32_t index);
void tpu_program_destroy(tpu_program* program);

/* ---- Events ------------------------------------------------------------------------------- */

/* The future of work on the board. */
typedef struct tpu_event tpu_event;

/* Called once, with TPU_OK and "" or with the failure of the work; `message` is valid during the
 * call. It may submit work and destroy handles, but not wait. */
typedef void (*tpu_event_callback)(void* user, tpu_status status, const char* message);

/* 1 when the work is over, well or badly. Never blocks. */
int tpu_event_ready(const tpu_event* event);
/* Waits, for at most that much wall-clock time (negative: for as long as it takes); then
 * TPU_TIMEOUT, and nothing is lost. Returns the failure of the work. */
tpu_status tpu_event_wait(const tpu_event* event, int64_t timeout_ns);
/* At once when the event is ready, else later on a thread of the library; nobody needs to wait
 * for it. */
tpu_status tpu_event_on_ready(const tpu_event* event, tpu_event_callback callback, void* user);
void tpu_event_destroy(tpu_event* event);

/* ---- Arrays ------------------------------------------------------------------------------- */

/* An array in host memory that the caller owns. */
typedef struct tpu_host_array {
  tpu_dtype dtype;
  size_t rank;
  const int64_t* shape;
  const int64_t* strides; /* in bytes, one a dimension, any sign; null: dense, row-major */
  const void* data;       /* of element [0, 0, ..] */
} tpu_host_array;

/* An array in the memory of one core or of several. */
typedef struct tpu_array tpu_array;

typedef struct tpu_array_info {
  size_t struct_size;
  tpu_dtype dtype;
  uint32_t part_count; /* cores that hold a part of it, or all */
  size_t rank;
  const int64_t* shape;       /* global */
  const int64_t* local_shape; /* of each part */
  uint64_t bytes;             /* of the global array, dense */
  int32_t live;               /* 0 after it was donated or discarded, or lost by a fault */
} tpu_array_info;

/* Uploads to one core. The bytes are read before the call returns. */
tpu_status tpu_array_put(int32_t device, const tpu_host_array* host, tpu_array** out);
tpu_status tpu_get_array_info(const tpu_array* array, tpu_array_info* info);
/* Core that holds part `part`; -1 when there is no such part. */
int32_t tpu_array_device(const tpu_array* array, uint32_t part);
/* Copies the global array to `data`, dense and row-major, and waits; `bytes` must be exactly the
 * array's. */
tpu_status tpu_array_read(const tpu_array* array, void* data, size_t bytes);
/* Starts the same copy; `data` must be there until the event is ready. */
tpu_status tpu_array_read_async(const tpu_array* array, void* data, size_t bytes, tpu_event** out);
/* Gives the memory of the board back, now or when work in flight with it is over. */
tpu_status tpu_array_discard(const tpu_array* array);
void tpu_array_destroy(tpu_array* array);

/* ---- Running ------------------------------------------------------------------------------ */

/* A program on a group of cores. */
typedef struct tpu_executable tpu_executable;

typedef struct tpu_run_options {
  size_t struct_size;
  uint32_t steps; /* of one launch; 0: 1. More than one needs a program whose state is donated */
  const uint32_t* keep; /* arguments that the program would take over, but that are to stay */
  size_t keep_count;
  const tpu_event* const* after; /* the launch starts behind these events, and fails with them */
  size_t after_count;
} tpu_run_options;

/* Loads onto `devices`, in the order of the program's partitions; null and 0: as it was
 * compiled. The program may be destroyed afterwards. Does not wait. */
tpu_status tpu_load(const tpu_program* program, const int32_t* devices, size_t count,
                    tpu_executable** out);
/* Uploads a global array as argument `index` of the program wants it: to all its cores, whole or
 * cut. */
tpu_status tpu_executable_put(const tpu_executable* executable, uint32_t index,
                              const tpu_host_array* host, tpu_array** out);
/* Launches and returns before it has run. `results` has room for all results of the program;
 * `done` (may be null) is ready when all cores have finished. Donated arguments are not live any
 * more, but are still to be destroyed. */
tpu_status tpu_run(const tpu_executable* executable, tpu_array* const* arguments,
                   size_t argument_count, const tpu_run_options* options, tpu_array** results,
                   size_t result_count, tpu_event** done);
/* Gives code and constants back; runs in flight are not disturbed, further ones are
 * TPU_FAILED_PRECONDITION. */
tpu_status tpu_executable_unload(const tpu_executable* executable);
void tpu_executable_destroy(tpu_executable* executable);

#ifdef __cplusplus
}
#endif
#endif
