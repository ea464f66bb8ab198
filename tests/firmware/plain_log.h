/* A function with log lines, as the plain image compiles them. */
#ifndef TPU_TESTS_FIRMWARE_PLAIN_LOG_H
#define TPU_TESTS_FIRMWARE_PLAIN_LOG_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
uint32_t plain_log(uint32_t (*count)(void));
#ifdef __cplusplus
}
#endif

#endif
