// A build that found no RISC-V cross compiler: this program has firmware/image/no_image.cpp in
// front of the library's image, as such a build has.
#include <gtest/gtest.h>

#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

TEST(NoFirmware, ASimulatedBoardSaysWhatToInstall) {
  try {
    Board::open({});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnimplemented) << error.what();
    for (const char* part : {"no firmware image", "sim_scripts/setup", "build again"}) {
      EXPECT_NE(error.message().find(part), std::string::npos) << error.what();
    }
  }
}

TEST(NoFirmware, TheNullBoardNeedsNone) {
  OpenOptions options;
  options.transport = "null";
  Board board = Board::open(options);
  EXPECT_EQ(board.devices().size(), 8U);
}

}  // namespace
}  // namespace tpu::driver
