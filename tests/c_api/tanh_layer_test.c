/* The C interface from a program in C: compiles a layer, runs it on TPU:3, compares a value, and
 * meets its errors. Arguments: an artifact of f32[32,200], f32[200,96], f32[96] -> f32[32,96],
 * tanh(x * w + b). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tpu/tpu.h"

static int failures = 0;

static void check(int good, const char* what) {
  if (!good) {
    fprintf(stderr, "failed: %s (last error: %s)\n", what, tpu_error_message());
    ++failures;
  }
}
#define CHECK(condition) check((condition), #condition)
#define CALL(expression) check((expression) == TPU_OK, #expression)

enum { kRows = 32, kInner = 200, kColumns = 96 };
static float x[kRows][kInner], w[kColumns][kInner], b[kColumns], y[kRows][kColumns];

static void* read_file(const char* path, size_t* bytes) {
  FILE* file = fopen(path, "rb");
  if (file == NULL) {
    perror(path);
    exit(1);
  }
  fseek(file, 0, SEEK_END);
  *bytes = (size_t)ftell(file);
  rewind(file);
  void* data = malloc(*bytes);
  if (fread(data, 1, *bytes, file) != *bytes) {
    exit(1);
  }
  fclose(file);
  return data;
}

/* Values that are exact in bf16, so that the product is. */
static void fill_inputs(void) {
  for (int i = 0; i < kRows; ++i) {
    for (int k = 0; k < kInner; ++k) {
      x[i][k] = (float)((i * 7 + k * 3) % 17 - 8) / 64.0F;
    }
  }
  for (int j = 0; j < kColumns; ++j) {
    for (int k = 0; k < kInner; ++k) {
      w[j][k] = (float)((j * 5 + k) % 13 - 6) / 32.0F;
    }
    b[j] = (float)j / 128.0F;
  }
}

static double largest_error(void) {
  double worst = 0;
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      double sum = b[j];
      for (int k = 0; k < kInner; ++k) {
        sum += (double)x[i][k] * w[j][k];
      }
      const double error = fabs(tanh(sum) - y[i][j]);
      worst = error > worst ? error : worst;
    }
  }
  return worst;
}

static void check_program(const tpu_program* program) {
  tpu_program_info info = {.struct_size = sizeof info};
  CALL(tpu_get_program_info(program, &info));
  CHECK(strcmp(info.name, "layer") == 0);
  CHECK(info.partitions == 1 && info.argument_count == 3 && info.result_count == 1);
  CHECK(info.matmul_flops == 2ULL * kRows * kInner * kColumns);
  CHECK(info.estimated_cycles > 0 && info.hbm_read_bytes >= sizeof x + sizeof w);
  tpu_parameter parameter = {.struct_size = sizeof parameter};
  CALL(tpu_program_argument(program, 1, &parameter));
  CHECK(parameter.dtype == TPU_F32 && parameter.rank == 2 && parameter.donated_to == -1);
  CHECK(parameter.shape[0] == kInner && parameter.shape[1] == kColumns);
  CHECK(tpu_program_argument(program, 3, &parameter) == TPU_INVALID_ARGUMENT);
  CHECK(strstr(tpu_error_message(), "there is no argument 3; the program has 3") != NULL);
  CHECK(tpu_program_note(program, info.note_count) == NULL);
}

static tpu_program* compile(const char* path) {
  size_t bytes = 0;
  void* artifact = read_file(path, &bytes);
  tpu_compile_options options = {.struct_size = sizeof options, .name = "layer"};
  tpu_program* program = NULL;
  CALL(tpu_compile(artifact, bytes, &options, &program));
  tpu_program* none = NULL;
  CHECK(tpu_compile(artifact, bytes / 2, NULL, &none) == TPU_INVALID_ARGUMENT && none == NULL);
  options.struct_size = 3;
  CHECK(tpu_compile(artifact, bytes, &options, &none) == TPU_INVALID_ARGUMENT);
  CHECK(tpu_compile(artifact, bytes, NULL, NULL) == TPU_INVALID_ARGUMENT);
  /* Lists are not read before their lengths are known to be possible. */
  const int32_t core = 0;
  options.struct_size = sizeof options;
  options.cores = &core;
  options.core_count = SIZE_MAX / sizeof core;
  CHECK(tpu_compile(artifact, bytes, &options, &none) == TPU_INVALID_ARGUMENT && none == NULL);
  CHECK(strstr(tpu_error_message(), "the board has 8 cores") != NULL);
  const int32_t away[] = {0, 8, -1, INT32_MAX, 0};
  options.cores = away;
  for (options.core_count = 2; options.core_count <= 4; ++options.core_count) {
    CHECK(tpu_compile(artifact, bytes, &options, &none) == TPU_INVALID_ARGUMENT && none == NULL);
    CHECK(strstr(tpu_error_message(), "names core 8") != NULL);
  }
  options.cores = away + 2;
  options.core_count = 1;
  CHECK(tpu_compile(artifact, bytes, &options, &none) == TPU_INVALID_ARGUMENT && none == NULL);
  CHECK(tpu_compile(NULL, 0, NULL, &none) == TPU_INVALID_ARGUMENT);
  free(artifact);
  return program;
}

/* A file of the program is the program. */
static tpu_program* reread(tpu_program* program) {
  const void* file = NULL;
  size_t bytes = 0;
  CALL(tpu_program_bytes(program, &file, &bytes));
  tpu_program* again = NULL;
  CALL(tpu_program_read(file, bytes, &again));
  tpu_program* none = NULL;
  CHECK(tpu_program_read(file, bytes - 1, &none) == TPU_INVALID_ARGUMENT && none == NULL);
  tpu_program_destroy(program);
  return again;
}

static void count_call(void* user, tpu_status status, const char* message) {
  *(int*)user += status == TPU_OK && message[0] == '\0' ? 1 : 1000;
}

static void put_arguments(const tpu_executable* layer, tpu_array* arguments[3]) {
  const int64_t x_shape[] = {kRows, kInner}, w_shape[] = {kInner, kColumns}, b_shape[] = {kColumns};
  const int64_t w_strides[] = {sizeof(float), kInner * sizeof(float)}; /* w lies transposed */
  const tpu_host_array hosts[] = {{TPU_F32, 2, x_shape, NULL, x},
                                  {TPU_F32, 2, w_shape, w_strides, w},
                                  {TPU_F32, 1, b_shape, NULL, b}};
  for (uint32_t i = 0; i < 3; ++i) {
    CALL(tpu_executable_put(layer, i, &hosts[i], &arguments[i]));
  }
  tpu_array* none = NULL;
  CHECK(tpu_executable_put(layer, 0, &hosts[1], &none) == TPU_INVALID_ARGUMENT && none == NULL);
  CHECK(tpu_array_put(8, &hosts[0], &none) == TPU_INVALID_ARGUMENT && none == NULL);
}

/* Counts that cannot be are refused before an entry is read: the lists here have one. */
static void check_counts(const tpu_program* program, const tpu_executable* layer,
                         tpu_array* const* arguments) {
  const int32_t device = 0;
  tpu_executable* none = NULL;
  CHECK(tpu_load(program, &device, SIZE_MAX / 8, &none) == TPU_INVALID_ARGUMENT && none == NULL);
  CHECK(strstr(tpu_error_message(), "the program runs on 1 cores") != NULL);
  tpu_array* result = NULL;
  CHECK(tpu_run(layer, arguments, SIZE_MAX / 8, NULL, &result, 1, NULL) == TPU_INVALID_ARGUMENT);
  CHECK(strstr(tpu_error_message(), "the program takes 3") != NULL);
  const uint32_t kept = 0;
  tpu_run_options options = {.struct_size = sizeof options, .keep = &kept};
  options.keep_count = SIZE_MAX / 8;
  CHECK(tpu_run(layer, arguments, 3, &options, &result, 1, NULL) == TPU_INVALID_ARGUMENT);
  CHECK(strstr(tpu_error_message(), "options->keep_count") != NULL);
  const tpu_event* const after = NULL;
  options.keep_count = 0;
  options.after = &after;
  options.after_count = SIZE_MAX / 8;
  CHECK(tpu_run(layer, arguments, 3, &options, &result, 1, NULL) == TPU_INVALID_ARGUMENT);
  CHECK(strstr(tpu_error_message(), "options->after_count") != NULL);
  const char* const text = "1";
  CHECK(tpu_board_change(&text, &text, SIZE_MAX / 8) == TPU_INVALID_ARGUMENT);
  CHECK(strstr(tpu_error_message(), "variables are changed at a time") != NULL);
}

static void run(const tpu_program* program) {
  const int32_t device = 3;
  tpu_executable* layer = NULL;
  CALL(tpu_load(program, &device, 1, &layer));
  tpu_array* arguments[3] = {NULL, NULL, NULL};
  put_arguments(layer, arguments);
  tpu_array* result = NULL;
  tpu_event* done = NULL;
  int calls = 0;
  CHECK(tpu_run(layer, arguments, 3, NULL, &result, 2, &done) == TPU_INVALID_ARGUMENT);
  CHECK(tpu_run(layer, arguments, 2, NULL, &result, 1, &done) == TPU_INVALID_ARGUMENT);
  check_counts(program, layer, arguments);
  CALL(tpu_run(layer, arguments, 3, NULL, &result, 1, &done));
  CALL(tpu_event_on_ready(done, count_call, &calls));
  CALL(tpu_event_wait(done, -1));
  CALL(tpu_board_synchronize(-1));
  CHECK(tpu_event_ready(done) == 1 && calls == 1);
  CHECK(tpu_array_device(result, 0) == device && tpu_array_device(result, 1) == -1);
  tpu_array_info info = {.struct_size = sizeof info};
  CALL(tpu_get_array_info(result, &info));
  CHECK(info.rank == 2 && info.shape[0] == kRows && info.shape[1] == kColumns && info.live == 1);
  CHECK(info.bytes == sizeof y);
  CHECK(tpu_array_read(result, y, sizeof y - 1) == TPU_INVALID_ARGUMENT);
  CALL(tpu_array_read(result, y, sizeof y));
  CHECK(largest_error() < 1e-5);
  CALL(tpu_array_discard(result));
  CHECK(tpu_array_read(result, y, sizeof y) == TPU_FAILED_PRECONDITION);
  CALL(tpu_executable_unload(layer));
  CHECK(tpu_run(layer, arguments, 3, NULL, &result, 1, &done) == TPU_FAILED_PRECONDITION);
  tpu_array_destroy(result);
  tpu_event_destroy(done);
  for (int i = 0; i < 3; ++i) {
    tpu_array_destroy(arguments[i]);
  }
  tpu_executable_destroy(layer);
}

static void check_counters(const tpu_board_info* board) {
  uint64_t* values = calloc(board->counter_count * board->device_count, sizeof *values);
  uint64_t cycles = 0, times = 0;
  tpu_checks checks = {.struct_size = sizeof checks};
  CALL(tpu_board_counters(values, board->counter_count * board->device_count, &cycles, &checks));
  CHECK(cycles > 0 && checks.lockstep_mismatches == 0);
  for (uint32_t i = 0; i < board->counter_count; ++i) {
    if (strcmp(tpu_counter_name(i), "mxu_flops") == 0) {
      CHECK(values[3 * board->counter_count + i] == 2ULL * kRows * kInner * kColumns);
      CHECK(values[i] == 0);
    }
    if (strncmp(tpu_counter_name(i), "time_", 5) == 0) {
      times += values[3 * board->counter_count + i];
    }
  }
  CHECK(times > 0 && times <= cycles); /* each cycle since the reset has one cause */
  CHECK(tpu_counter_name(board->counter_count) == NULL);
  CHECK(tpu_board_counters(values, 1, NULL, NULL) == TPU_INVALID_ARGUMENT);
  free(values);
}

static void change(const char* variable, const char* value, tpu_status expected) {
  CHECK(tpu_board_change(&variable, &value, 1) == expected);
}

/* One row for each operation, and the one of nobody. */
static void check_op_times(const tpu_board_info* board) {
  tpu_op_times* times = NULL;
  CALL(tpu_board_op_times(&times));
  uint64_t cycles = 0, commands = 0;
  int dots = 0;
  for (uint32_t i = 0; i < tpu_op_times_count(times); ++i) {
    tpu_op_time time = {.struct_size = sizeof time};
    CALL(tpu_op_times_get(times, i, &time));
    CHECK(strcmp(time.program, "layer") == 0);
    CHECK(time.op[0] != '\0' || time.commands == 0);
    dots += strstr(time.op, "dot") != NULL && strstr(time.source, ".py:") != NULL;
    cycles += time.cycles;
    commands += time.commands;
  }
  tpu_op_time none = {.struct_size = sizeof none};
  CHECK(tpu_op_times_get(times, tpu_op_times_count(times), &none) == TPU_INVALID_ARGUMENT);
  tpu_op_times_destroy(times);
  uint64_t* values = calloc(board->counter_count * board->device_count, sizeof *values);
  CALL(tpu_board_counters(values, board->counter_count * board->device_count, NULL, NULL));
  for (uint32_t i = 0; i < board->counter_count; ++i) {
    if (strcmp(tpu_counter_name(i), "run_cycles") == 0) {
      CHECK(values[3 * board->counter_count + i] == cycles);
    }
  }
  free(values);
  CHECK(dots == 1 && commands > 0);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s tanh_layer.mlirbc\n", argv[0]);
    return 2;
  }
  CHECK(strlen(tpu_version()) > 0 && tpu_board_is_open() == 0);
  CHECK(strcmp(tpu_status_name(TPU_TIMEOUT), "Timeout") == 0);
  fill_inputs();
  tpu_program* program = compile(argv[1]);
  check_program(program);
  program = reread(program);
  CHECK(tpu_board_is_open() == 0); /* compiling needs its numbers only */
  tpu_board_info board = {.struct_size = sizeof board};
  CALL(tpu_get_board_info(&board));
  CHECK(tpu_board_is_open() == 1 && board.device_count == 8 && strcmp(board.name, "v3_8") == 0);
  change("TPUBOARD_OP_TIMES", "1", TPU_OK);
  change("TPUBOARD_OP_TIMES", "often", TPU_INVALID_ARGUMENT);
  change("TPUBOARD_BOARD", "v2_8", TPU_FAILED_PRECONDITION);
  CHECK(strstr(tpu_error_message(), "TPUBOARD_BOARD cannot change while the board is open") !=
        NULL);
  CHECK(tpu_board_change(NULL, NULL, 1) == TPU_INVALID_ARGUMENT);
  run(program);
  check_op_times(&board);
  tpu_device_info device = {.struct_size = sizeof device};
  CALL(tpu_get_device_info(3, &device));
  CHECK(device.chip == 1 && device.core == 1 && device.hbm_bytes == 16ULL << 30 &&
        device.hbm_peak > sizeof x);
  CHECK(tpu_get_device_info(8, &device) == TPU_INVALID_ARGUMENT);
  check_counters(&board);
  tpu_program_destroy(program);
  tpu_program_destroy(NULL);
  return failures == 0 ? 0 : 1;
}
