/* FW_LOG("text of %u words", count): a line of the log that `--firmware-log` shows with its cycle.
   The hart stores its arguments and the address of the text, and never looks at the text: whoever
   reads the log fills it in (docs/firmware.md, "Log of the firmware"). Arguments are words, at most
   TPU_CONSOLE_LOG_ARGS; a text for %s goes as FW_TEXT(pointer). Code only in images that are built
   with FW_LOG_LINES: a line is one store to a device an argument, and one more. */
#ifndef TPU_FIRMWARE_DEV_LOG_H
#define TPU_FIRMWARE_DEV_LOG_H

#include "dev/mmio.h"
#include "tpu/spec/console_regs.h"

#define FW_TEXT(pointer) ((uint32_t)(uintptr_t)(pointer))

#ifdef FW_LOG_LINES
static inline void log_line(const char* text, const uint32_t* args, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    REG_WRITE(CONSOLE, LOG_ARG, args[i]);
  }
  REG_WRITE(CONSOLE, LOG, FW_TEXT(text));
}
/* The first word is there for lines without arguments. */
#define FW_LOG(text, ...)                                             \
  do {                                                                \
    const uint32_t log_args[] = {0, ##__VA_ARGS__};                   \
    _Static_assert(sizeof log_args / 4u - 1u <= TPU_CONSOLE_LOG_ARGS, \
                   "too many arguments of a log line");               \
    log_line(text, log_args + 1, sizeof log_args / 4u - 1u);          \
  } while (0)
#else
/* Nothing is computed, but what only a line of the log uses counts as used. */
#define FW_LOG(text, ...) ((void)sizeof((const uint32_t[]){0, ##__VA_ARGS__}))
#endif

#endif
