// What the board's numbers say that a host takes (host.*), on the simulated board: the clock goes
// on by so much before the call takes effect, and the board works meanwhile.
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

Board open_board(const std::vector<std::string>& overrides) {
  OpenOptions options;
  options.overrides = overrides;
  return Board::open(options);
}

Executable load_copy(const Board& board, int turns) {
  const std::string loop = turns == 0 ? std::string()
                                      : "  li r3, " + std::to_string(turns) +
                                            "\nturn:\n  addi r3, r3, -1\n  bne r3, r0, turn\n";
  const std::string text =
      std::string(".program \"copy\"") + test::kCopySlots + test::kCopyCommands + loop + "  halt\n";
  return board.load(
      exe::write_executable(compiler::assemble(text, "test.s", spec::load_board("v3_8"))));
}

uint64_t cycles_of(const Board& board, const std::function<void()>& body) {
  const uint64_t start = board.now();
  body();
  return board.now() - start;
}

TEST(SimHostTime, ADispatchTakesItsCyclesAndTheBoardGoesOnMeanwhile) {
  constexpr uint64_t kDispatch = 200'000;
  const Board board = open_board({"host.dispatch_cycles=" + std::to_string(kDispatch)});
  const HostArray sent = counting(DType::kI32, {1024});
  const Executable copy = load_copy(board, 30'000);
  const Array x = copy.put(0, sent);
  x.wait();
  RunResult first, second;
  EXPECT_EQ(cycles_of(board, [&] { first = copy.run({x}); }), kDispatch);
  const uint64_t alone = cycles_of(board, [&] { first.done.wait(); });
  ASSERT_GT(alone, kDispatch / 2);
  ASSERT_LT(alone, kDispatch);
  first = copy.run({x});
  EXPECT_EQ(cycles_of(board, [&] { second = copy.run({x}); }), kDispatch);
  EXPECT_TRUE(first.done.ready());  // while the second one was dispatched
  EXPECT_EQ(cycles_of(board, [&] { second.done.wait(); }), alone);
  EXPECT_EQ(first.outputs[0].to_host().bytes, sent.bytes);
  EXPECT_EQ(second.outputs[0].to_host().bytes, sent.bytes);
  EXPECT_EQ(cycles_of(board, [&] { copy.put(0, sent); }), 0U);
  EXPECT_EQ(board.counters().late_calls, 0U);
  board.close();
}

TEST(SimHostTime, InputIsMadeReadyAtItsRate) {
  const Board board = open_board({"host.input_gbps=0.5"});
  const HostArray sent = counting(DType::kI32, {250'000});
  const uint64_t cycles = 1'000'000 * 940 / 500;
  Array shards;
  const uint64_t before = board.peek().cores[7].times.input;
  EXPECT_EQ(cycles_of(board, [&] { shards = board.shard(sent); }), cycles);
  EXPECT_EQ(board.peek().cores[7].times.input - before, cycles);
  EXPECT_EQ(shards.to_host().bytes, sent.bytes);
  Array replicas;  // made ready once
  EXPECT_EQ(cycles_of(board, [&] { replicas = board.replicate(sent); }), cycles);
  EXPECT_EQ(replicas.to_host_checked("x").bytes, sent.bytes);
  board.close();
}

TEST(SimHostTime, CopiesReachTheirShareOfTheLink) {
  const Board board = open_board({"host.transfer_efficiency=50"});
  const HostArray sent = counting(DType::kI32, {2'000'000});
  const double wire = 8e6 * 940 / (15e3 * 0.5);
  Buffer buffer;
  const auto up = static_cast<double>(cycles_of(board, [&] {
    buffer = board.put(3, sent);
    buffer.ready().wait();
  }));
  EXPECT_NEAR(up, wire, 0.01 * wire);
  HostArray back;
  const auto down = static_cast<double>(cycles_of(board, [&] { back = buffer.to_host(); }));
  EXPECT_NEAR(down, wire, 0.01 * wire);
  EXPECT_EQ(back.bytes, sent.bytes);
  board.close();
}

}  // namespace
}  // namespace tpu::driver
