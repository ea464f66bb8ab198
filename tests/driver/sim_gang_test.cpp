// Programs of two cores, written by hand, that send what their peer does not wait for: the sender
// is told, and the next programs on both cores find semaphores and memory as after a reset.
#include <gtest/gtest.h>

#include <algorithm>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "tests/driver/copy_program.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using test::counting;
using test::kCopySlots;

// Argument to result through VMEM, with the semaphores that the strays aim at.
constexpr const char* kCopy = R"(
  dma_in.dma signal=5:1 src=hbm[0]+0 dst=vmem+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  dma_out.dma wait=5:1:take signal=6:1 src=vmem+0 dst=hbm[1]+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  swait r6, r0, 1
  halt
)";
// Replica 1 halts at once; replica 0 goes on for `turns` turns and then sends.
std::string stray(const std::string& name, int turns, const std::string& send) {
  return ".program \"" + name + "\"\n.partitions 2\n" + kCopySlots +
         "  rid r1\n  bne r1, r0, end\n  li r2, 1\n  li r3, " + std::to_string(turns) +
         "\nturn:\n  addi r3, r3, -1\n  bne r3, r0, turn\n" + send + "\nend:\n  halt\n";
}

constexpr const char* kSignal = "  dma_remote.nop signal=5:1:r2";
constexpr const char* kWrite =
    "  dma_remote.dma src=vmem+0 dst=vmem+0 peer_reg=2 elem_bytes=4 counts=[1,1,1,1,1024] "
    "src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]";

class SimGang : public ::testing::Test {
 protected:
  void SetUp() override { board_ = Board::open(); }
  void TearDown() override { board_.close(); }

  Executable load(const std::string& text, int device = 0) {
    const auto exe = compiler::assemble(text, "test.s", spec::load_board("v3_8"));
    return board_.load(exe::write_executable(exe), device);
  }
  Executable load_copy(int partitions, int device = 0) {
    return load(
        ".program \"copy\"\n.partitions " + std::to_string(partitions) + "\n" + kCopySlots + kCopy,
        device);
  }

  Board board_;
};

TEST_F(SimGang, StrayPacketIsAFaultOfItsSenderAndLeavesNothingBehind) {
  const Executable pair = load_copy(2);
  const Executable alone = load_copy(1, 1);
  const HostArray sent = counting(DType::kI32, {1024});
  const Array x = pair.put(0, sent);
  const Array y = alone.put(0, sent);
  for (const char* send : {kSignal, kWrite}) {
    // The receiver has not bound another launch yet, or is far ahead of the sender.
    for (const int turns : {2000, 200000}) {
      const Executable bad = load(stray("stray", turns, send));
      const RunResult failed = bad.run({bad.put(0, sent)});
      const RunResult ahead = alone.run({y});
      const RunResult behind = pair.run({x});
      const auto error = failed.done.wait_for_error();
      ASSERT_NE(error, nullptr) << send;
      EXPECT_EQ(error->place().device, 0) << error->what();
      EXPECT_NE(error->message().find("REMOTE_STRAY"), std::string::npos) << error->what();
      EXPECT_EQ(ahead.outputs[0].to_host().bytes, sent.bytes);
      EXPECT_EQ(behind.outputs[0].to_host().bytes, sent.bytes);
      EXPECT_EQ(alone.run({y}).outputs[0].to_host().bytes, sent.bytes);
    }
  }
}

// The receiver faults while signals and writes to it are on their way.
TEST_F(SimGang, FaultWithPacketsOnTheirWayLeavesNothingBehind) {
  const Executable pair = load_copy(2);
  const HostArray sent = counting(DType::kI32, {1024});
  const Array x = pair.put(0, sent);
  std::string send;
  for (int i = 0; i < 6; ++i) {
    send += std::string(kSignal) + "\n" + kWrite + " signal=6:1:r2\n";
  }
  std::string text = stray("storm", 3, send);
  // Replica 1 loses its way after some of them.
  const std::string end = "end:\n";
  text.replace(text.find(end), end.size(),
               "  halt\nend:\n  li r3, 400\nwait:\n  addi r3, r3, -1\n  bne r3, r0, wait\n"
               "  dma_in.dma src=hbm[0]+64 dst=vmem+0 elem_bytes=4 counts=[1,1,1,1,1024] "
               "src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]\n");
  const Executable bad = load(text);
  for (int i = 0; i < 3; ++i) {
    const auto error = bad.run({bad.put(0, sent)}).done.wait_for_error();
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->place().device, 1) << error->what();
    EXPECT_NE(error->message().find("SLOT_RANGE"), std::string::npos) << error->what();
    EXPECT_EQ(pair.run({x}).outputs[0].to_host().bytes, sent.bytes);
  }
}

}  // namespace
}  // namespace tpu::driver
