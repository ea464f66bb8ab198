// Loads that fail: at whatever step, memory of all cores and program ids are as before.
#include <gtest/gtest.h>

#include "tests/driver/null_board.hpp"
#include "tests/driver/program_builder.hpp"

namespace tpu::driver {
namespace {

using test::counting;
using test::hbm_used;
using test::NullBoard;
using test::ProgramBuilder;

constexpr int kProgramIds = 64;

std::vector<std::byte> program(uint32_t partitions) {
  ProgramBuilder builder(partitions);
  builder.argument(DType::kI32, {16});
  builder.result(DType::kI32, {16});
  builder.constant(std::vector<uint8_t>(100000, 3));
  builder.constant(std::vector<uint8_t>(1000, 5));
  builder.scratch(uint64_t{1} << 20);
  return builder.bytes();
}

// All ids of all cores can be had, and memory is as `before`.
void expect_nothing_lost(const Board& board, const std::vector<uint64_t>& before) {
  EXPECT_EQ(hbm_used(board), before);
  ProgramBuilder builder(8);
  builder.argument(DType::kI32, {16});
  const auto bytes = builder.bytes();
  std::vector<Executable> held;
  for (int i = 0; i < kProgramIds; ++i) {
    ASSERT_NO_THROW(held.push_back(board.load(bytes))) << "id " << i;
  }
  held.back().run({held.back().put(0, counting(DType::kI32, {16}))}).done.wait();
  held.clear();
  board.load(bytes);  // collects the ids
  board.synchronize();
  EXPECT_EQ(hbm_used(board), before);
}

TEST(LoadFailure, FullMemoryOfAnyCoreLosesNothing) {
  const NullBoard n;
  const auto bytes = program(8);
  for (int device = 0; device < 8; ++device) {
    // The image finds room, the scratch memory does not.
    const Buffer full =
        n.board.zeros(device, DType::kU8, {(int64_t{16} << 30) - (int64_t{1} << 19)});
    const std::vector<uint64_t> before = hbm_used(n.board);
    for (int i = 0; i < kProgramIds + 1; ++i) {
      try {
        n.board.load(bytes);
        FAIL();
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ErrorCode::kResourceExhausted);
        ASSERT_EQ(error.place().device, device) << error.what();
      }
    }
    expect_nothing_lost(n.board, before);
  }
}

TEST(LoadFailure, UsedUpIdsOfOneCoreLoseNothing) {
  const NullBoard n;
  const std::vector<uint64_t> before = hbm_used(n.board);
  {
    const HostEvent gate = n.board.make_event();  // launches behind it keep their ids
    std::vector<Executable> held;
    const auto single = program(1);
    for (int i = 0; i < kProgramIds; ++i) {
      held.push_back(n.board.load(single, 5));
      const Array argument = held.back().put(0, counting(DType::kI32, {16}));
      held.back().run({argument}, {.steps = 1, .keep = {}, .after = {gate.event()}});
    }
    const auto gang = program(8);
    for (int i = 0; i < kProgramIds + 1; ++i) {
      EXPECT_THROW(n.board.load(gang), Error);
    }
  }
  n.board.synchronize();
  expect_nothing_lost(n.board, before);
}

// A load is 8 times LOAD_PROGRAM and two constants.
TEST(LoadFailure, AFailureOfAnyCommandLosesNothing) {
  const NullBoard n;
  const auto bytes = program(8);
  const std::vector<uint64_t> before = hbm_used(n.board);
  for (int good = 0; good < 24; ++good) {
    n.null->good_entries = good;
    n.null->corrupt_entries = 1 << 20;
    EXPECT_THROW(n.board.load(bytes), Error) << good;
    n.null->good_entries = n.null->corrupt_entries = 0;
    EXPECT_EQ(hbm_used(n.board), before) << good;
  }
  expect_nothing_lost(n.board, before);
}

// A core that has loaded the code and dies among the constants starts again with both.
TEST(LoadFailure, AHartThatDiesDuringTheLoadLosesNothing) {
  const NullBoard n;
  const HostArray sent = counting(DType::kI32, {16});
  for (int behind = 1; behind < 24; ++behind) {
    n.null->dead_behind = behind;
    const Executable made = n.board.load(program(8));
    EXPECT_EQ(n.null->dead_behind, 0);
    const RunResult result = made.run({made.put(0, sent)});
    EXPECT_EQ(result.done.wait_for_error(), nullptr) << behind;
  }
  EXPECT_EQ(n.board.put(0, sent).to_host().bytes, sent.bytes);
}

TEST(LoadFailure, ABoardThatBreaksDuringTheLoadSaysSo) {
  const NullBoard n;
  n.null->throw_in_run = true;
  EXPECT_THROW(n.board.load(program(8)), Error);
  EXPECT_EQ(hbm_used(n.board), std::vector<uint64_t>(8, 0));
}

// Results of the eighth core find no room: what was made for the others is given back.
TEST(LaunchFailure, FullMemoryLosesNothing) {
  const NullBoard n;
  ProgramBuilder builder(8);
  builder.argument(DType::kI32, {256});
  builder.result(DType::kI32, {256}, false, 0);
  builder.result(DType::kU8, {int64_t{1} << 30});
  const Executable executable = n.board.load(builder.bytes());
  const HostArray sent = counting(DType::kI32, {256});
  const Array state = executable.put(0, sent);
  const Buffer full = n.board.zeros(7, DType::kU8, {(int64_t{16} << 30) - (int64_t{1} << 29)});
  n.board.synchronize();
  const std::vector<uint64_t> before = hbm_used(n.board);
  for (int i = 0; i < 20; ++i) {
    EXPECT_THROW(executable.run({state}), Error);
    EXPECT_THROW(executable.run({state}, {.steps = 1, .keep = {0}}), Error);
  }
  n.board.synchronize();
  EXPECT_EQ(hbm_used(n.board), before);
  EXPECT_EQ(state.to_host_checked("state").bytes, sent.bytes);
}

}  // namespace
}  // namespace tpu::driver
