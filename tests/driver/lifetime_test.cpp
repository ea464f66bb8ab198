// Buffers and programs that are given back by name, views with strides, and the figures of memory
// and programs; on every transport.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/driver/error_code.hpp"
#include "tests/driver/null_board.hpp"
#include "tests/driver/program_builder.hpp"
#include "tests/driver/worker_process.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using test::code_of;
using test::counting;
using test::hbm_used;
using test::ProgramBuilder;

class Lifetime : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    OpenOptions options = test::open_options(GetParam());
    board_ = Board::open(options);
  }
  void TearDown() override { board_.close(); }

  uint64_t used(int device) const { return hbm_used(board_)[static_cast<size_t>(device)]; }

  Board board_;
};

TEST_P(Lifetime, DiscardedBuffersAreGoneForEveryHandle) {
  const Buffer buffer = board_.put(2, counting(DType::kU8, {100000}));
  const Buffer same = buffer;
  buffer.ready().wait();
  EXPECT_GT(used(2), 0u);
  same.discard();
  EXPECT_EQ(used(2), 0u);
  EXPECT_FALSE(buffer.live());
  EXPECT_EQ(buffer.bytes(), 100000u);
  std::vector<std::byte> out(100000);
  EXPECT_EQ(code_of([&] { buffer.read(out); }), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of([&] { buffer.to_host(); }), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of([&] { board_.copy(buffer, 3); }), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of([&] { buffer.address(); }), ErrorCode::kFailedPrecondition);
  buffer.discard();
  EXPECT_EQ(code_of([] { Buffer().discard(); }), ErrorCode::kInvalidArgument);
}

// Code that needs one subject of the board takes that facet.
Buffer zeros_on(const MemoryFacet& memory, int device) {
  return memory.zeros(device, DType::kF32, {16});
}

TEST_P(Lifetime, FacetsAreHandlesOfTheBoard) {
  EXPECT_EQ(zeros_on(board_, 1).device(), 1);
  EXPECT_EQ(zeros_on(board_.memory(), 2).device(), 2);
  EXPECT_EQ(board_.profiling().now(), board_.now());
  EXPECT_EQ(code_of([&] { board_.programs().load("/nowhere", 0); }), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(board_.snapshots().take_snapshot_items().arrays.empty());
  EXPECT_TRUE(board_.debug_port().valid());
  const MemoryFacet kept = board_;
  EXPECT_EQ(zeros_on(kept, 3).device(), 3);
  EXPECT_FALSE(MemoryFacet().valid());
  EXPECT_EQ(code_of([] { zeros_on(MemoryFacet(), 0); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { static_cast<void>(ProfilingFacet().now()); }),
            ErrorCode::kInvalidArgument);
}

TEST_P(Lifetime, ABoardThatWasMovedFromIsEmpty) {
  Board moved = std::move(board_);
  EXPECT_TRUE(moved.valid());
  EXPECT_FALSE(board_.valid());  // NOLINT(bugprone-use-after-move): what it says
  board_ = std::move(moved);
  EXPECT_FALSE(moved.valid());  // NOLINT(bugprone-use-after-move): what it says
  EXPECT_EQ(board_.zeros(0, DType::kF32, {4}).device(), 0);
  Board copy = board_;
  copy = board_;
  EXPECT_TRUE(copy.valid() && board_.valid());
}

TEST_P(Lifetime, DiscardingDoesNotDisturbWhatIsInFlight) {
  ProgramBuilder builder(8);
  builder.argument(DType::kI32, {30000});
  builder.argument(DType::kI32, {16});
  builder.result(DType::kI32, {30000}, false, 0);
  const Executable program = board_.load(builder.bytes());
  const std::vector<uint64_t> before = hbm_used(board_);
  const HostArray sent = counting(DType::kI32, {30000});
  for (int i = 0; i < 3; ++i) {
    const Array state = program.put(0, sent);
    const Array other = program.put(1, counting(DType::kI32, {16}));
    std::vector<std::byte> out(sent.bytes.size());
    const RunResult result = program.run({state, other});
    const Event read = result.outputs[0].read(out);
    other.discard();
    result.outputs[0].discard();
    read.wait();
    EXPECT_EQ(out, sent.bytes);
    EXPECT_EQ(code_of([&] {
                program.run({result.outputs[0], other});
              }),
              ErrorCode::kFailedPrecondition);
    board_.synchronize();
    EXPECT_EQ(hbm_used(board_), before);  // the donated argument's handle holds nothing either
  }
}

TEST_P(Lifetime, UnloadedProgramsGiveBackMemoryAndIds) {
  ProgramBuilder builder(8);
  builder.argument(DType::kI32, {256});
  builder.result(DType::kI32, {256}, false, 0);
  builder.constant(std::vector<uint8_t>(5000, 7));
  builder.scratch(1 << 20);
  const auto bytes = builder.bytes();
  const HostArray sent = counting(DType::kI32, {256});
  std::vector<Executable> kept;
  for (int i = 0; i < 70; ++i) {  // more than there are ids
    const Executable program = board_.load(bytes);
    const Array state = program.put(0, sent);
    const RunResult result = program.run({state});
    const Executable same = program;
    program.unload();
    same.unload();
    EXPECT_EQ(result.outputs[0].to_host().bytes, sent.bytes);
    EXPECT_EQ(code_of([&] { same.run({state}); }), ErrorCode::kFailedPrecondition);
    EXPECT_EQ(code_of([&] { same.put(0, sent); }), ErrorCode::kFailedPrecondition);
    EXPECT_EQ(same.name(), "halt_program");
    EXPECT_EQ(same.arguments().size(), 1u);
    kept.push_back(program);
  }
  board_.synchronize();
  EXPECT_EQ(hbm_used(board_), std::vector<uint64_t>(8, 0));
  EXPECT_EQ(code_of([] { Executable().unload(); }), ErrorCode::kInvalidArgument);
}

TEST_P(Lifetime, MemoryFiguresFollowTheBuffers) {
  constexpr uint64_t kPage = 65536;
  const DeviceInfo empty = board_.devices()[1];
  EXPECT_EQ(empty.hbm_used, 0u);
  EXPECT_EQ(empty.hbm_peak, 0u);
  EXPECT_EQ(empty.hbm_largest_free, empty.hbm_bytes - kPage);  // address 0 is left out
  std::vector<Buffer> buffers;
  for (int i = 0; i < 4; ++i) {
    buffers.push_back(board_.zeros(1, DType::kU8, {int64_t{1} << 30}));
  }
  board_.synchronize();
  buffers[1].discard();
  buffers[3].discard();
  const DeviceInfo info = board_.devices()[1];
  EXPECT_EQ(info.hbm_used, uint64_t{2} << 30);
  EXPECT_EQ(info.hbm_peak, uint64_t{4} << 30);
  EXPECT_EQ(info.hbm_largest_free, (uint64_t{13} << 30) - kPage);
  EXPECT_EQ(info.hbm_limit, info.hbm_bytes - kPage);
  EXPECT_EQ(info.hbm_ranges, 2u);
  EXPECT_EQ(info.hbm_ranges_ever, 4u);
  EXPECT_EQ(info.hbm_largest_ever, uint64_t{1} << 30);
  const auto largest = static_cast<int64_t>(info.hbm_largest_free);
  EXPECT_EQ(code_of([&] { board_.zeros(1, DType::kU8, {largest + 1}); }),
            ErrorCode::kResourceExhausted);
  board_.zeros(1, DType::kU8, {largest}).ready().wait();
}

TEST_P(Lifetime, CostOfAProgramAddsUp) {
  ProgramBuilder builder(8);
  builder.argument(DType::kF32, {8, 100}, true);
  builder.argument(DType::kF32, {50});
  builder.result(DType::kF32, {8, 100}, true, 0);
  builder.result(DType::kF32, {7});
  builder.constant(std::vector<uint8_t>(300, 1));
  builder.scratch(4096);
  builder.exe().matmul_flops = 123;
  builder.exe().estimated_cycles = 456;
  builder.exe().vector_ops = 11;
  builder.exe().hbm_read_bytes = 12;
  builder.exe().hbm_written_bytes = 13;
  builder.exe().link_bytes = 14;
  builder.exe().vmem_peak_bytes = 789;
  const ProgramCost cost = board_.load(builder.bytes()).cost();
  EXPECT_EQ(cost.matmul_flops, 123u);
  EXPECT_EQ(cost.estimated_cycles, 456u);
  EXPECT_EQ(cost.vector_ops, 11u);
  EXPECT_EQ(cost.hbm_read_bytes, 12u);
  EXPECT_EQ(cost.hbm_written_bytes, 13u);
  EXPECT_EQ(cost.link_bytes, 14u);
  EXPECT_EQ(cost.vmem_peak_bytes, 789u);
  EXPECT_EQ(cost.argument_bytes, 400u + 200u);
  EXPECT_EQ(cost.result_bytes, 400u + 28u);
  EXPECT_EQ(cost.donated_bytes, 400u);
  EXPECT_EQ(cost.constant_bytes, 300u);
  EXPECT_EQ(cost.scratch_bytes, 4096u);
  EXPECT_GT(cost.code_bytes, 0u);
  EXPECT_EQ(cost.hbm_bytes, cost.code_bytes + 600u + 28u + 300u + 4096u);
}

TEST_P(Lifetime, ZerosOfAnArgumentFitIt) {
  ProgramBuilder builder(8);
  builder.argument(DType::kF32, {8, 100}, true);
  builder.result(DType::kF32, {8, 100}, true, 0);
  const Executable program = board_.load(builder.bytes());
  const Array zeros = program.zeros(0);
  EXPECT_EQ(program.run({zeros}).outputs[0].to_host().bytes, std::vector<std::byte>(3200));
  EXPECT_EQ(code_of([&] { program.zeros(1); }), ErrorCode::kInvalidArgument);
}

TEST_P(Lifetime, ViewsWithStridesAreSentAsTheyRead) {
  const HostArray base = counting(DType::kI32, {6, 10});
  std::vector<int32_t> values(60);
  std::memcpy(values.data(), base.bytes.data(), base.bytes.size());
  struct View {
    Shape shape;
    std::vector<int64_t> strides;
    uint64_t first;
  };
  const std::vector<View> views = {{{10, 6}, {4, 40}, 0},        // transposed
                                   {{6, 10}, {-40, -4}, 236},    // both turned round
                                   {{3, 5}, {80, 8}, 4},         // every other one
                                   {{6, 7, 10}, {40, 0, 4}, 0},  // repeated
                                   {{1, 4}, {1 << 20, 4}, 8},    // a stride that nobody takes
                                   {{0, 4}, {-4096, 4}, 0},      // nothing
                                   {{}, {}, 0}};
  for (const View& view : views) {
    std::vector<std::byte> wanted(element_count(view.shape) * 4);
    for (uint64_t i = 0; i < element_count(view.shape); ++i) {
      auto at = static_cast<int64_t>(view.first);
      uint64_t rest = i;
      for (size_t d = view.shape.size(); d-- > 0;) {
        at += static_cast<int64_t>(rest % static_cast<uint64_t>(view.shape[d])) * view.strides[d];
        rest /= static_cast<uint64_t>(view.shape[d]);
      }
      std::memcpy(wanted.data() + 4 * i, base.bytes.data() + at, 4);
    }
    const std::span<const std::byte> data =
        view.strides.empty() ? std::span(base.bytes).first(4) : std::span(base.bytes);
    const HostView host(DType::kI32, view.shape, data, view.strides, view.first);
    EXPECT_EQ(board_.put(5, host).to_host().bytes, wanted);
    EXPECT_EQ(board_.replicate(host).to_host_checked("view").bytes, wanted);
  }
  const HostView turned(DType::kI32, {8, 6}, base.bytes, {4, 40});
  EXPECT_EQ(board_.shard(turned).to_host().bytes, board_.put(0, turned).to_host().bytes);
}

TEST_P(Lifetime, ViewsThatLeaveTheirBytesAreRefused) {
  const std::vector<std::byte> data(100);
  const auto refused = [&](const Shape& shape, const std::vector<int64_t>& strides,
                           uint64_t first) {
    const HostView view(DType::kI32, shape, data, strides, first);
    EXPECT_EQ(code_of([&] { board_.put(0, view); }), ErrorCode::kInvalidArgument);
  };
  refused({5, 5}, {20, 4}, 4);
  refused({5, 5}, {20, -4}, 12);
  refused({26}, {4}, 0);
  refused({2}, {INT64_MAX}, 0);
  refused({2}, {INT64_MIN}, 96);
  refused({int64_t{1} << 60}, {INT64_MAX}, 0);
  refused({5}, {4, 4}, 0);
  refused({1}, {4}, 97);
  refused({1}, {4}, UINT64_MAX);
  board_.put(0, HostView(DType::kI32, {5, 5}, data, {20, 4})).ready().wait();
}

INSTANTIATE_TEST_SUITE_P(Null, Lifetime, ::testing::ValuesIn(test::null_boards()));
#ifdef TPU_HAVE_SIM_TRANSPORT
INSTANTIATE_TEST_SUITE_P(Sim, Lifetime, ::testing::ValuesIn(test::sim_boards()));
#endif

}  // namespace
}  // namespace tpu::driver
