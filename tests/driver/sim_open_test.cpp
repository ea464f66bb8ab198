// A simulated board that cannot be built: the code says whose fault it is.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <cerrno>

#include "tests/driver/error_code.hpp"
#include "tpu/tpu.hpp"

namespace {
bool no_more_threads = false;
}

// In front of the C library's: the limit of a user does not bind root.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return no_more_threads ? EAGAIN : create(thread, attributes, body, argument);
}

namespace tpu::driver {
namespace {

TEST(SimOpen, AHostWithoutThreadsIsShortOfThem) {
  no_more_threads = true;
  EXPECT_EQ(test::code_of([] { Board::open({}); }), ErrorCode::kResourceExhausted);
}

TEST(SimOpen, BadOptionsAreTheCallers) {
  OpenOptions options;
  options.sim.mxu = {{"board.chip9.core0.mxu0", "fast"}};
  EXPECT_EQ(test::code_of([&] { Board::open(options); }), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tpu::driver
