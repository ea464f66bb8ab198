// Transfers of any size, on every transport: through a small staging memory they go in many pieces,
// more than the rings hold, and nothing stays behind when one fails.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "check/host_room.hpp"
#include "src/board/board_impl.hpp"
#include "src/handles/access.hpp"
#include "tests/driver/null_board.hpp"
#include "tests/driver/program_builder.hpp"
#include "tests/driver/worker_process.hpp"

namespace tpu::driver {
namespace {

using test::counting;
using test::hbm_used;
using test::NullBoard;
using test::ProgramBuilder;

constexpr uint64_t kSmallStaging = uint64_t{64} << 10;  // pieces of 16 KiB
constexpr int64_t kManyPieces = int64_t{5} << 20;       // bytes: 320 pieces

class Transfer : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    OpenOptions options = test::open_options(GetParam());
    options.staging_bytes = kSmallStaging;
    board_ = Board::open(options);
  }
  void TearDown() override { board_.close(); }

  Board board_;
};

TEST_P(Transfer, ArraysLargerThanStagingMemoryComeBack) {
  const HostArray sent = counting(DType::kU8, {kManyPieces + 77});
  {
    const Buffer buffer = board_.put(3, sent);
    const Buffer copy = board_.clone(buffer);
    EXPECT_EQ(buffer.to_host().bytes, sent.bytes);
    EXPECT_EQ(copy.to_host().bytes, sent.bytes);
    const Buffer zero = board_.zeros(3, DType::kU8, {kManyPieces});
    EXPECT_EQ(zero.to_host().bytes, std::vector<std::byte>(kManyPieces));
  }
  board_.synchronize();
  EXPECT_EQ(hbm_used(board_), std::vector<uint64_t>(8, 0));
}

// Half floats, complex128 and the like: only their size is known.
TEST_P(Transfer, ElementsOfUnknownMeaningMoveAndNoProgramTakesThem) {
  ProgramBuilder builder(1);
  builder.argument(DType::kF32, {6, 5});
  const Executable program = board_.load(builder.bytes());
  uint64_t size = 1;
  for (const DType dtype :
       {DType::kBytes1, DType::kBytes2, DType::kBytes4, DType::kBytes8, DType::kBytes16}) {
    EXPECT_EQ(dtype_bytes(dtype), size);
    const HostArray sent = counting(dtype, {6, 5});
    EXPECT_EQ(sent.bytes.size(), 30 * size);
    EXPECT_EQ(board_.copy(board_.put(0, sent), 5).to_host().bytes, sent.bytes);
    EXPECT_EQ(board_.shard(sent, 2).to_host().bytes, sent.bytes);
    // Transposed on its way.
    const auto step = static_cast<int64_t>(size);
    HostArray turned{dtype, {5, 6}, {}};
    for (uint64_t column = 0; column < 5; ++column) {
      for (uint64_t row = 0; row < 6; ++row) {
        const auto* element = &sent.bytes[(row * 5 + column) * size];
        turned.bytes.insert(turned.bytes.end(), element, element + size);
      }
    }
    const HostView view(dtype, {5, 6}, sent.bytes, {step, 5 * step});
    EXPECT_EQ(board_.put(3, view).to_host().bytes, turned.bytes);
    try {
      program.put(0, sent);
      ADD_FAILURE() << "the program took " << dtype_name(dtype);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(error.message().find("f32[6,5], not bytes"), std::string::npos) << error.what();
    }
    size *= 2;
  }
  EXPECT_THROW(dtype_bytes(static_cast<DType>(0x85)), Error);
}

TEST_P(Transfer, ReadsThatAreNotWaitedForArriveToo) {
  const HostArray sent = counting(DType::kU8, {300000});
  const Buffer buffer = board_.put(1, sent);
  std::vector<std::vector<std::byte>> outs(4, std::vector<std::byte>(sent.bytes.size()));
  std::vector<Event> events;
  for (auto& out : outs) {
    events.push_back(buffer.read(out));
  }
  for (size_t i = 0; i < outs.size(); ++i) {
    events[i].wait();
    EXPECT_EQ(outs[i], sent.bytes);
  }
}

TEST_P(Transfer, LargeGlobalArraysAreCutAndPutTogetherInPieces) {
  const HostArray sent = counting(DType::kI32, {40, 16, 130});
  for (const size_t dim : {size_t{0}, size_t{1}}) {
    EXPECT_EQ(board_.shard(sent, 8, dim).to_host_checked("shards").bytes, sent.bytes) << dim;
  }
  EXPECT_EQ(board_.replicate(sent).to_host_checked("replicas").bytes, sent.bytes);
}

TEST_P(Transfer, ProgramsLargerThanStagingMemoryAreLoaded) {
  ProgramBuilder builder(8);
  builder.argument(DType::kI32, {50000}, true);
  builder.result(DType::kI32, {50000}, true, 0);
  builder.constant(std::vector<uint8_t>(500001, 9));
  builder.pad_code(20000);
  const auto bytes = builder.bytes();
  const HostArray sent = counting(DType::kI32, {50000});
  for (int i = 0; i < 3; ++i) {
    const Executable program = board_.load(bytes);
    EXPECT_EQ(program.run({program.put(0, sent)}).outputs[0].to_host().bytes, sent.bytes);
  }
}

TEST_P(Transfer, PutsAndLaunchesKeepTheirOrderThroughSmallStagingMemory) {
  ProgramBuilder builder(1);
  builder.argument(DType::kI32, {60000});
  builder.result(DType::kI32, {60000}, false, 0);
  const Executable program = board_.load(builder.bytes(), 2);
  std::vector<Array> results;
  for (uint8_t i = 0; i < 6; ++i) {
    results.push_back(program.run({program.put(0, counting(DType::kI32, {60000}, i))}).outputs[0]);
  }
  for (uint8_t i = 0; i < 6; ++i) {
    EXPECT_EQ(results[i].to_host().bytes, counting(DType::kI32, {60000}, i).bytes);
  }
}

// More than one piece of what read_pieces() hands out.
TEST(TransferSize, AnArrayNeedNotBeOnTheHostAsAWhole) {
  OpenOptions options;
  options.staging_bytes = uint64_t{1} << 20;
  const NullBoard n(options);
  constexpr int64_t kRows = 72;
  constexpr int64_t kColumns = int64_t{1} << 20;
  const HostArray sent = counting(DType::kU8, {kRows, kColumns});
  const Array replicated = n.board.replicate(sent, 3);
  for (const Array& array : {n.board.shard(sent, 8, 0), n.board.shard(sent, 8, 1), replicated}) {
    for (const std::string compared : {"", "it"}) {
      uint64_t at = 0;
      size_t pieces = 0;
      array.read_pieces(
          [&](std::span<const std::byte> piece) {
            ASSERT_LE(at + piece.size(), sent.bytes.size());
            EXPECT_EQ(std::memcmp(piece.data(), sent.bytes.data() + at, piece.size()), 0) << at;
            at += piece.size();
            ++pieces;
          },
          compared);
      EXPECT_EQ(at, sent.bytes.size());
      EXPECT_EQ(pieces, 2u);
    }
  }
  HostArray other = sent;
  other.bytes.back() ^= std::byte{1};
  std::vector<Buffer> parts = replicated.parts();
  parts[2] = n.board.put(2, other);
  const Array mixed(DType::kU8, sent.shape, replicated.layout(), parts);
  const auto ignore = [](std::span<const std::byte>) {};
  mixed.read_pieces(ignore);
  try {
    mixed.read_pieces(ignore, "it");
    ADD_FAILURE() << "no difference was found";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("it differs between cores 0 and 2 at element [71,1048575]"),
              std::string::npos)
        << error.message();
  }
  EXPECT_THROW(
      mixed.read_pieces([](std::span<const std::byte>) { throw std::runtime_error("enough"); }),
      std::runtime_error);
}

INSTANTIATE_TEST_SUITE_P(Null, Transfer, ::testing::ValuesIn(test::null_boards()));
#ifdef TPU_HAVE_SIM_TRANSPORT
INSTANTIATE_TEST_SUITE_P(Sim, Transfer, ::testing::ValuesIn(test::sim_boards()));
#endif

OpenOptions small_staging() {
  OpenOptions options;
  options.staging_bytes = kSmallStaging;
  return options;
}

TEST(TransferFailure, AFailureAmongThePiecesFreesEverything) {
  const NullBoard n(small_staging());
  const HostArray sent = counting(DType::kU8, {kManyPieces});
  for (const int good : {0, 1, 17, 300}) {
    n.null->good_entries = good;
    n.null->corrupt_entries = 1 << 20;
    const Buffer lost = n.board.put(6, sent);
    EXPECT_NE(lost.ready().wait_for_error(), nullptr) << good;
    n.null->good_entries = n.null->corrupt_entries = 0;
    EXPECT_FALSE(lost.live());
  }
  n.board.synchronize();
  EXPECT_EQ(hbm_used(n.board), std::vector<uint64_t>(8, 0));
  EXPECT_EQ(n.board.put(6, sent).to_host().bytes, sent.bytes);
}

// The pieces behind the one that fails are queued in front of the launch.
TEST(TransferFailure, ALaunchDoesNotRunOnAnArgumentOfWhichAPieceIsLost) {
  OpenOptions options;
  options.staging_bytes = uint64_t{1} << 20;
  const NullBoard n(options);
  ProgramBuilder builder(1);
  builder.argument(DType::kU8, {600000});
  builder.result(DType::kU8, {600000}, false, 0);
  const Executable program = n.board.load(builder.bytes(), 2);
  n.board.synchronize();
  int launches = 0;
  n.null->executor = [&](NullLaunch&) -> std::optional<tpu_fault_record_t> {
    ++launches;
    return std::nullopt;
  };
  n.null->good_entries = n.null->corrupt_entries = 1;
  n.null->spoil_completion = [&, first = true](std::span<std::byte> record) mutable {
    tpu_completion_t completion;
    std::memcpy(&completion, record.data(), sizeof(completion));
    if (std::exchange(first, first && completion.status != TPU_STATUS_BAD_CRC) != first) {
      // The firmware looks at wrong entries first, so the piece in front is flushed and sent again
      // too; the one that was damaged is damaged again.
      n.null->good_entries = n.null->corrupt_entries = 1;
    }
  };
  const Array x = program.put(0, counting(DType::kU8, {600000}));
  const RunResult result = program.run({x});
  EXPECT_NE(result.done.wait_for_error(), nullptr);
  EXPECT_NE(x.parts()[0].ready().wait_for_error(), nullptr);
  EXPECT_EQ(launches, 0);
  n.null->spoil_completion = nullptr;
  const HostArray sent = counting(DType::kU8, {600000}, 3);
  EXPECT_EQ(program.run({program.put(0, sent)}).outputs[0].to_host().bytes, sent.bytes);
}

// A read of many pieces waits for room while the launch behind its buffer fails.
TEST(TransferFailure, AReadWhoseBufferIsLostOnTheWayKeepsNothing) {
  const NullBoard n(small_staging());
  ProgramBuilder builder(1);
  builder.argument(DType::kU8, {kManyPieces});
  builder.result(DType::kU8, {kManyPieces}, false, 0);
  const Executable program = n.board.load(builder.bytes(), 2);
  const HostArray sent = counting(DType::kU8, {kManyPieces});
  const Array x = program.put(0, sent);
  n.board.synchronize();
  n.null->executor = [](NullLaunch&) -> std::optional<tpu_fault_record_t> {
    tpu_fault_record_t fault{};
    fault.code = TPU_FAULT_SLOT_RANGE;
    fault.core = 2;
    return fault;
  };
  const RunResult lost = program.run({x});
  const auto& state = Access::state(lost.outputs[0].parts()[0]);
  const auto token = std::make_shared<int>(0);
  int pieces = 0;
  const Event read = state->board->memory().read(
      {{state,
        {{0, state->bytes}},
        [token, &pieces](uint64_t, std::span<const std::byte>) { ++pieces; }}},
      {});
  EXPECT_NE(read.wait_for_error(), nullptr);
  n.board.synchronize();
  EXPECT_EQ(pieces, 0);
  EXPECT_EQ(token.use_count(), 1) << "pieces of the read are still held";
}

TEST(TransferFailure, ABoardThatBreaksAmongThePiecesFreesEverything) {
  const NullBoard n(small_staging());
  const HostArray sent = counting(DType::kU8, {kManyPieces});
  const Buffer buffer = n.board.put(0, sent);
  n.null->throw_in_run = true;
  EXPECT_THROW(n.board.put(1, sent).ready().wait(), Error);
  EXPECT_THROW(static_cast<void>(buffer.to_host()), Error);
  EXPECT_EQ(n.board.devices()[1].hbm_used, 0u);
}

TEST(TransferFailure, StagingMemoryHasALeastSize) {
  OpenOptions options;
  options.transport = "null";
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{100}, ~uint64_t{0}}) {
    options.staging_bytes = bytes;
    EXPECT_THROW(Board::open(options), Error) << bytes;
  }
}

#ifdef TPU_HAVE_SIM_TRANSPORT
// The simulated board's memory is the host's. One byte is repeated: the caller has no array.
TEST(TransferSize, ArraysThatTheHostCannotHoldAreRefusedBeforeTheyAreMade) {
  constexpr int64_t kBytes = int64_t{15} << 30;
  const Board board = Board::open();
  if (host_room() >= board.devices().size() * kBytes) {
    GTEST_SKIP() << "the host has room for the memory of all cores";
  }
  const std::array<std::byte, 1> one{std::byte{7}};
  const HostView view(DType::kU8, {kBytes}, one, {0});
  const auto refused = [&](auto call) {
    try {
      call();
      ADD_FAILURE() << "no error was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
      EXPECT_NE(error.message().find("bytes of host memory"), std::string::npos);
    }
  };
  refused([&] { board.replicate(view); });
  ProgramBuilder results(8);
  results.result(DType::kU8, {8, kBytes}, true);
  const Executable program = board.load(results.bytes());
  refused([&] { program.run({}); });
  ProgramBuilder scratch(8);
  scratch.scratch(kBytes);
  refused([&] { board.load(scratch.bytes()); });
  const HostArray sent = counting(DType::kU8, {8, 100});
  EXPECT_EQ(board.shard(sent).to_host().bytes, sent.bytes);
}
#endif

TEST(TransferSize, AConstantLargerThanTheUsualStagingMemoryIsLoaded) {
  const NullBoard n;
  ProgramBuilder builder(1);
  builder.argument(DType::kI32, {16});
  builder.result(DType::kI32, {16}, false, 0);
  builder.constant(std::vector<uint8_t>(size_t{260} << 20, 1));
  const Executable program = n.board.load(builder.bytes());
  std::vector<std::byte> last(16);
  n.null->executor = [&](NullLaunch& launch) -> std::optional<tpu_fault_record_t> {
    const tpu_slot_entry_t& slot = launch.parts[0].slots[1];
    launch.parts[0].hbm->read(slot.base + slot.size - last.size(), last);
    return std::nullopt;
  };
  program.run({program.put(0, counting(DType::kI32, {16}))}).done.wait();
  EXPECT_EQ(last, std::vector<std::byte>(16, std::byte{1}));
}

}  // namespace
}  // namespace tpu::driver
