// Log lines of an image without them.
#include "plain_log.h"

#include <gtest/gtest.h>

namespace tpu::test {
namespace {

uint32_t calls = 0;
uint32_t counted() { return ++calls; }

// Half of the test is that plain_log.c compiles: a variable of a log line alone is no warning.
TEST(PlainImage, ComputesNothingForLogLines) {
  EXPECT_EQ(plain_log(&counted), 1U);
  EXPECT_EQ(calls, 0U);
}

}  // namespace
}  // namespace tpu::test
