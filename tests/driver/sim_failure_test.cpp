// Bad core programs on the simulated board, through driver, PCIe and firmware: what the user is
// told, and that the board and every other buffer survive. Programs are written by hand.
#include <gtest/gtest.h>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "tests/driver/copy_program.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using test::copy_program;
using test::counting;

class SimFailure : public ::testing::Test {
 protected:
  void SetUp() override { board_ = Board::open(); }
  void TearDown() override { board_.close(); }

  Executable load(const std::string& text) {
    const auto exe = compiler::assemble(text, "test.s", spec::load_board("v3_8"));
    return board_.load(exe::write_executable(exe), 3);
  }

  static std::string changed(const std::string& from, const std::string& to) {
    std::string text = copy_program();
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  }

  void expect_copies(const std::string& text) {
    const Executable good = load(text);
    const HostArray sent = counting(DType::kI32, {1024});
    EXPECT_EQ(good.run({good.put(0, sent)}).outputs[0].to_host().bytes, sent.bytes);
  }

  // Runs `text`, expects a fault that says `part`, and that the argument and the board live on.
  std::shared_ptr<const Error> expect_fault(const std::string& text, const std::string& part) {
    const Executable bad = load(text);
    const Executable good = load(copy_program());
    const HostArray sent = counting(DType::kI32, {1024});
    const Array argument = bad.put(0, sent);
    const RunResult result = bad.run({argument});
    const RunResult behind = good.run({argument});
    const auto error = result.done.wait_for_error();
    EXPECT_NE(error, nullptr);
    if (error) {
      EXPECT_EQ(error->code(), ErrorCode::kDeviceFault) << error->what();
      EXPECT_EQ(error->place().device, 3);
      EXPECT_NE(error->message().find(part), std::string::npos) << error->what();
    }
    EXPECT_EQ(behind.outputs[0].to_host().bytes, sent.bytes);
    EXPECT_EQ(argument.to_host().bytes, sent.bytes);
    EXPECT_EQ(board_.put(0, sent).to_host().bytes, sent.bytes);
    return error;
  }

  Board board_;
};

TEST_F(SimFailure, GoodProgramCopies) { expect_copies(copy_program()); }

TEST_F(SimFailure, AccessOutsideOfASlotNamesIt) {
  expect_fault(changed("dst=hbm[1]+0", "dst=hbm[1]+64"), "SLOT_RANGE");
}

TEST_F(SimFailure, ASlotRegisterThatLeavesTheTableIsNamed) {
  std::string text = changed("dst=hbm[1]+0", "dst=hbm[1+r7]+0");
  expect_copies(text);  // r7 is 0
  const size_t first = text.find("  dma_in.dma");
  ASSERT_NE(first, std::string::npos) << text;
  const auto error = expect_fault(text.insert(first, "  li r7, 40\n"), "SLOT_RANGE");
  ASSERT_NE(error, nullptr);
  EXPECT_NE(
      error->message().find(": the slot register holds 40, 0 at most is in the launch's table"),
      std::string::npos)
      << error->what();
}

// What the record does not hold comes over the debug port.
TEST_F(SimFailure, FaultsHaveTheCoresOwnWordsAndWhereItsHartStands) {
  const auto error = expect_fault(changed("dst=hbm[1]+0", "dst=hbm[1]+64"), "SLOT_RANGE");
  ASSERT_NE(error, nullptr);
  for (const char* part :
       {" says: DMA operand outside of its memory or slot", "the control hart of TPU:", " at 0x"}) {
    EXPECT_NE(error->message().find(part), std::string::npos) << error->what();
  }
}

// Of the program: what it refused, and the words by which the listing names statements.
TEST_F(SimFailure, FaultsShowTheStatementBetweenItsNeighbours) {
  const auto error = expect_fault(changed("dst=hbm[1]+0", "dst=hbm[1]+64"), "SLOT_RANGE");
  ASSERT_NE(error, nullptr);
  const std::string text = error->message();
  const size_t before = text.find("\n  word 0: dma_in.dma op=");
  const size_t here = text.find("\n> word ");
  const size_t behind = text.find("\n  word 42: swait r1, r0, 1", here);
  EXPECT_LT(before, here) << text;
  EXPECT_LT(here, behind) << text;
  EXPECT_NE(behind, std::string::npos) << text;
  EXPECT_NE(text.find("dma_out.dma", here), std::string::npos) << text;
  EXPECT_NE(text.find("dst=hbm[1]+64", here), std::string::npos) << text;
}

TEST_F(SimFailure, AccessOutsideOfVmemNamesIt) {
  expect_fault(changed("dst=vmem+0", "dst=vmem+16777215"), "VMEM_RANGE");
}

// The address stands in the program: it is not a value from data that went astray.
TEST_F(SimFailure, AnAddressOfTheProgramOutsideOfVmemIsCalledAConstant) {
  const auto error = expect_fault(changed("dst=vmem+0", "dst=vmem+16777215"), "VMEM_RANGE");
  ASSERT_NE(error, nullptr);
  EXPECT_NE(error->message().find(": the address is a constant of the program, not a value from "
                                  "data: it is 16777215, 16773120 at most is inside"),
            std::string::npos)
      << error->what();
  const auto low = expect_fault(changed("dst=vmem+0", "dst=vmem-64"), "VMEM_RANGE");
  ASSERT_NE(low, nullptr);
  EXPECT_NE(low->message().find("it is -64, and the operand reaches below address 0 from there"),
            std::string::npos)
      << low->what();
}

TEST_F(SimFailure, FaultCarriesOpAndSourceLine) {
  std::string text = changed("dst=hbm[1]+0", "dst=hbm[1]+64");
  text.replace(text.find("  dma_in"), 0, ".op \"copy\" file=\"model.py\" line=42\n");
  const auto error = expect_fault(text, "engine dma_out");
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->place().op, "copy");
  EXPECT_EQ(error->place().source, "model.py:42");
}

TEST_F(SimFailure, MalformedCommandsSayInWordsWhatIsWrong) {
  const auto error = expect_fault(changed("dst=vmem+0 elem_bytes=4", "dst=vmem+0 elem_bytes=3"),
                                  "element type, element size, counts or strides");
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->message().find("detail"), std::string::npos) << error->what();
}

// The sequencer's fault names the op of the command in front of the pc, not the first of the table.
TEST_F(SimFailure, ValueFromDataThatLeavesItsRangeIsNamedWithItsLimit) {
  std::string text =
      changed("  swait r1, r0, 1\n", "  swait r1, r0, 1\n  li r5, 100000\n  lds32 r6, r5, 4\n");
  text.replace(text.find("dma_out.dma"), 11, "dma_out.dma op=1");
  text.replace(text.find("  dma_in"), 0,
               ".op \"in\" file=\"model.py\" line=41\n.op \"out\" file=\"model.py\" line=42\n");
  const auto error = expect_fault(text, "SMEM_RANGE");
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->place().op, "out");
  EXPECT_EQ(error->place().source, "model.py:42");
  EXPECT_NE(error->message().find("the address register holds 100000, 16376 at most is inside"),
            std::string::npos)
      << error->what();
}

TEST_F(SimFailure, DeadlockSaysWhoWaits) {
  const auto error = expect_fault(changed("wait=0:1:take", "wait=0:2:take"), "dma_out");
  ASSERT_NE(error, nullptr);
  EXPECT_NE(error->message().find("semaphore 0"), std::string::npos) << error->what();
}

TEST_F(SimFailure, SemaphoreLeftOverAtTheEnd) {
  const auto error = expect_fault(changed("signal=1:1", "signal=1:2"), "SEM_NONZERO_AT_END");
  ASSERT_NE(error, nullptr);
  EXPECT_NE(error->message().find("run it with SimOptions::check, which says whose signal"),
            std::string::npos)
      << error->what();
}

// An image that is no program: the board does not open, and says why.
TEST(SimFirmware, UselessImageIsRefused) {
  OpenOptions options;
  options.firmware.assign(4096, std::byte{0xff});
  try {
    Board::open(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal) << error.what();
    EXPECT_NE(error.message().find("does not boot"), std::string::npos) << error.what();
    EXPECT_NE(error.message().find("the control hart of TPU:"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tpu::driver
