// Gangs on the simulated board. Programs of two cores, written by hand, that send what their peer
// does not wait for: the sender is told, and the next programs on both cores find semaphores and
// memory as after a reset. How often a gang's launch comes back to the driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "tests/driver/copy_program.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/spec/rings.h"
#include "tpu/tpu.hpp"
#include "tpu/transport.hpp"

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

// Overrides of a v3_8: as it is, and as a pod whose boards have one core each.
class SimGang : public ::testing::TestWithParam<std::vector<std::string>> {
 protected:
  void SetUp() override {
    OpenOptions options;
    options.overrides = GetParam();
    board_ = Board::open(options);
  }
  void TearDown() override { board_.close(); }

  Executable load(const std::string& text, int device = 0) {
    const auto exe = compiler::assemble(text, "test.s", spec::load_board("v3_8", GetParam()));
    return board_.load(exe::write_executable(exe), device);
  }
  Executable load_copy(int partitions, int device = 0) {
    return load(
        ".program \"copy\"\n.partitions " + std::to_string(partitions) + "\n" + kCopySlots + kCopy,
        device);
  }

  Board board_;
};

TEST_P(SimGang, StrayPacketIsAFaultOfItsSenderAndLeavesNothingBehind) {
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
TEST_P(SimGang, FaultWithPacketsOnTheirWayLeavesNothingBehind) {
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

// The receiver's VMEM ends in front of the last bytes of the write, which only the receiver knows.
TEST_P(SimGang, WriteThatDoesNotFitIsAFaultOfItsSender) {
  const Executable pair = load_copy(2);
  const HostArray sent = counting(DType::kI32, {1024});
  const Array x = pair.put(0, sent);
  const int64_t vmem = spec::load_board("v3_8", GetParam()).core.vmem_kib * 1024;
  const Executable bad =
      load(".program \"too_far\"\n.partitions 2\n" + std::string(kCopySlots) +
           "  rid r1\n  bne r1, r0, wait\n  li r2, 1\n  li r4, " + std::to_string(vmem - 64) +
           "\n  dma_remote.dma src=vmem+0 dst=vmem+0+r4 peer_reg=2 elem_bytes=4 "
           "counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]\n  halt\n"
           "wait:\n  li r3, 20000\nturn:\n  addi r3, r3, -1\n  bne r3, r0, turn\n  halt\n");
  for (int i = 0; i < 2; ++i) {
    const auto error = bad.run({bad.put(0, sent)}).done.wait_for_error();
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->place().device, 0) << error->what();
    EXPECT_NE(error->message().find("VMEM_RANGE"), std::string::npos) << error->what();
    EXPECT_EQ(pair.run({x}).outputs[0].to_host().bytes, sent.bytes);
  }
}

// In both directions at a time, shorter and longer than a page of HBM.
TEST_P(SimGang, CopiesFromCoreToCore) {
  for (const int64_t count : {int64_t{1024}, int64_t{300'000}}) {
    const HostArray sent = counting(DType::kI32, {count});
    const Buffer there = board_.copy(board_.put(0, sent), 1);
    const Buffer back = board_.copy(there, 0);
    const Buffer other = board_.copy(board_.put(1, sent), 0);
    EXPECT_EQ(there.to_host().bytes, sent.bytes);
    EXPECT_EQ(back.to_host().bytes, sent.bytes);
    EXPECT_EQ(other.to_host().bytes, sent.bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(
    , SimGang,
    ::testing::Values(std::vector<std::string>{},
                      std::vector<std::string>{"board.chips=1", "board.torus_x=1",
                                               "board.cores_per_chip=1", "pod.boards_x=4",
                                               "pod.boards_y=2"}),
    [](const auto& test) { return test.param.empty() ? "OneBoard" : "BoardsOfOneCore"; });

// The simulated board, and how often it came back to the driver; with `handling` off it does so at
// each interrupt, as a transport that knows nothing else.
class CountingSim : public Transport {
 public:
  explicit CountingSim(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  uint32_t read32(int chip, int bar, uint64_t offset) override {
    return inner_->read32(chip, bar, offset);
  }
  void write32(int chip, int bar, uint64_t offset, uint32_t value) override {
    inner_->write32(chip, bar, offset, value);
  }
  void write32_many(std::span<const RegisterWrite> writes) override {
    inner_->write32_many(writes);
  }
  void write_block(int chip, int bar, uint64_t offset, std::span<const std::byte> data) override {
    inner_->write_block(chip, bar, offset, data);
  }
  RunOutcome run() override {
    ++returns;
    return inner_->run();
  }
  RunOutcome run_handling(const InterruptHandler& handler) override {
    if (!handling) {
      return run();
    }
    ++returns;
    return inner_->run_handling(handler);
  }
  uint64_t now() override { return inner_->now(); }
  TransportStats stats() override { return inner_->stats(); }
  std::string close() override { return inner_->close(); }

  bool handling = true;
  uint64_t returns = 0;

 private:
  const std::unique_ptr<Transport> inner_;
};

TEST(SimGangWays, ALaunchComesBackOnceAndTakesTheSameCycles) {
  CountingSim* sim = nullptr;
  OpenOptions options;
  options.completion_thread = false;
  options.factory = [&sim](const TransportRequest& request, HostMemory& memory) {
    auto made = std::make_unique<CountingSim>(make_sim_transport(request, memory));
    sim = made.get();
    return made;
  };
  Board board = Board::open(options);
  const std::string text = std::string(".program \"copy\"\n.partitions 8\n") + kCopySlots + kCopy;
  const auto exe = compiler::assemble(text, "test.s", spec::load_board("v3_8"));
  const Executable copy = board.load(exe::write_executable(exe), 0);
  const HostArray sent = counting(DType::kI32, {1024});
  const Array x = copy.put(0, sent);
  board.synchronize();
  std::array<uint64_t, 2> cycles{};
  std::array<uint64_t, 2> returns{};
  for (const bool handling : {false, true, false, true}) {
    sim->handling = handling;
    const uint64_t before = sim->returns;
    const uint64_t begin = sim->now();
    const RunResult result = copy.run({x});
    result.done.wait();
    cycles[handling ? 1 : 0] = sim->now() - begin;
    returns[handling ? 1 : 0] = sim->returns - before;
    EXPECT_EQ(result.outputs[0].to_host().bytes, sent.bytes);
  }
  EXPECT_EQ(cycles[0], cycles[1]);
  EXPECT_GT(returns[0], 2U);
  EXPECT_EQ(returns[1], 1U);
  board.close();
}

// A gang of all cores of a board or pod ends well, or by its last core.
void end_by_the_last_core(int cores, const std::string& name,
                          const std::vector<std::string>& overrides) {
  OpenOptions options;
  options.preset = name;
  options.overrides = overrides;
  Board board = Board::open(options);
  const spec::BoardParams params = spec::load_board(name, overrides);
  const auto load = [&](const std::string& code) {
    const std::string text = ".program \"all\"\n.partitions " + std::to_string(cores) + "\n" +
                             std::string(kCopySlots) + code;
    return board.load(exe::write_executable(compiler::assemble(text, "test.s", params)));
  };
  const Executable copy = load(kCopy);
  const Executable bad =
      load("  rid r1\n  li r2, " + std::to_string(cores - 1) +
           "\n  bne r1, r2, others\n  li r3, 5000\n"
           "  dma_remote.nop signal=5:1:r3\nothers:\n  swait r6, r0, 1\n  halt\n");
  const HostArray sent = counting(DType::kI32, {1024});
  const Array x = copy.put(0, sent);
  EXPECT_EQ(copy.run({x}).outputs[0].to_host().bytes, sent.bytes);
  const auto error = bad.run({bad.put(0, sent)}).done.wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->place().device, cores - 1) << error->what();
  const RunResult again = copy.run({x});
  for (const Buffer& part : again.outputs[0].parts()) {
    EXPECT_EQ(part.to_host().bytes, sent.bytes);
  }
  board.close();
}

TEST(SimGangWays, OnThirtyTwoCoresTheLastOneCountsToo) {
  end_by_the_last_core(32, "v3_8", {"board.chips=16", "board.torus_x=4"});
}
TEST(SimGangWays, OnAPodToo) { end_by_the_last_core(32, "v3_32", {}); }
TEST(SimGangWays, OnAHundredTwentyEightCoresToo) {
  end_by_the_last_core(128, "v3_8", {"board.chips=64", "board.torus_x=8"});
}
// The gang has a second row.
TEST(SimGangWays, OnMoreCoresThanARowOfAGangHasToo) {
  end_by_the_last_core(320, "v3_8", {"board.chips=160", "board.torus_x=16"});
}

// Host memory of which the board reads one table of a launch with a bit wrong.
class SpoiltTables : public HostMemory {
 public:
  static constexpr size_t kBytes = 3 * sizeof(tpu_slot_entry_t);

  explicit SpoiltTables(HostMemory& memory) : memory_(memory) {}

  std::span<std::byte> span(uint64_t iova, uint64_t bytes, bool write) override {
    const std::span<std::byte> real = memory_.span(iova, bytes, write);
    if (write || bytes != kBytes) {
      return real;
    }
    if (good_ != 0 && --good_ == 0) {
      place_ = iova;
    }
    if (place_ != iova) {
      return real;
    }
    copy_.assign(real.begin(), real.end());
    copy_.front() ^= std::byte{0x10};
    return copy_;
  }
  // The one behind `good` others.
  void spoil(int good) { good_ = good + 1; }
  void stop() { place_.reset(); }
  bool spoilt() const { return place_.has_value(); }

 private:
  HostMemory& memory_;
  int good_ = 0;
  std::optional<uint64_t> place_;
  std::vector<std::byte> copy_;
};

// A core refuses the launch before the others have joined, and they wait for a batch, where no
// barrier tells them.
void end_a_feed(int cores, const std::string& name, const std::vector<std::string>& overrides,
                const std::string& slots, const std::string& result) {
  std::unique_ptr<SpoiltTables> memory;
  OpenOptions options;
  options.preset = name;
  options.overrides = overrides;
  options.factory = [&memory](const TransportRequest& request, HostMemory& real) {
    memory = std::make_unique<SpoiltTables>(real);
    return make_sim_transport(request, *memory);
  };
  Board board = Board::open(options);
  std::string code = kCopy;
  code.replace(code.find("hbm[1]"), 6, result);
  const Executable copy = board.load(exe::write_executable(compiler::assemble(
      ".program \"copy\"\n.partitions " + std::to_string(cores) + "\n" + slots + code, "test.s",
      spec::load_board(name, overrides))));
  const HostArray sent = counting(DType::kI32, {1024});
  const Array x = copy.put(0, sent);
  const std::vector<Array> others(copy.arguments().size() - 1, x);
  const auto arguments = [&others](const Array& first) {
    std::vector<Array> all = others;
    all.insert(all.begin(), first);
    return all;
  };
  RunOptions fed;
  fed.steps = 3;
  fed.infeed = {0};
  for (const int good : {0, 5}) {
    memory->spoil(good);
    const RunResult run = copy.run(arguments(Array()), fed);
    for (int i = 0; i < 4; ++i) {  // meanwhile the launch comes to the cores
      EXPECT_EQ(x.to_host().bytes, sent.bytes);
    }
    EXPECT_TRUE(memory->spoilt());
    run.feed.end();
    EXPECT_NE(run.done.wait_for_error(), nullptr);
    memory->stop();
    EXPECT_EQ(copy.run(arguments(x)).outputs[0].to_host().bytes, sent.bytes);
  }
  board.close();
}

TEST(SimGangWays, TheEndOfAFeedReachesAGangOfWhichACoreDidNotStart) {
  end_a_feed(8, "v3_8", {}, R"(
.slot argument bytes=4096
.slot argument bytes=4096
.slot result bytes=4096
.arg "x" elem=i32 global=[1024] slot=0
.arg "z" elem=i32 global=[1024] slot=1
.result "y" elem=i32 global=[1024] slot=2
)",
             "hbm[2]");
}
TEST(SimGangWays, TheEndOfAFeedReachesAGangWithRowsToo) {
  end_a_feed(64, "v3_8", {"board.chips=32", "board.torus_x=4"}, kCopySlots, "hbm[1]");
}

}  // namespace
}  // namespace tpu::driver
