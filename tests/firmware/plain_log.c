/* What a log line leaves in an image without them: compiled with all warnings as errors. */
#include "plain_log.h"

#include "dev/log.h"

uint32_t plain_log(uint32_t (*count)(void)) {
  const uint32_t only_logged = 7;
  FW_LOG("no arguments");
  FW_LOG("%u of %u", only_logged, count());
  return 1;
}
