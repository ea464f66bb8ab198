// Boards in one process: several, one after the other, and closed ones. What cannot work says why.
#include <gtest/gtest.h>

#include "tests/driver/program_builder.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using test::counting;
using test::passing;

Board open_board(const char* transport) {
  OpenOptions options;
  options.transport = transport;
  return Board::open(options);
}

// The text of the error that `call` throws.
std::string refusal(const std::function<void()>& call,
                    ErrorCode code = ErrorCode::kInvalidArgument) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.message();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

TEST(Boards, OfTheNullTransportLiveSideBySideAndOneAfterTheOther) {
  const HostArray a = counting(DType::kI32, {16}, 1);
  const HostArray b = counting(DType::kI32, {16}, 2);
  const Board first = open_board("null");
  {
    const Board second = open_board("null");
    const Buffer in_first = first.put(0, a);
    const Buffer in_second = second.put(0, b);
    EXPECT_EQ(in_first.to_host().bytes, a.bytes);
    EXPECT_EQ(in_second.to_host().bytes, b.bytes);
    second.close();
  }
  EXPECT_EQ(first.put(1, b).to_host().bytes, b.bytes);
  first.close();
  const Board third = open_board("null");
  EXPECT_EQ(third.put(1, b).to_host().bytes, b.bytes);
}

TEST(Boards, RefuseBuffersOfOtherBoards) {
  const Board first = open_board("null");
  const Board second = open_board("null");
  const Executable program = second.load(passing(1).bytes());
  const Executable twin = first.load(passing(1).bytes());
  const Array foreign = twin.put(0, counting(DType::kI32, {16}));
  EXPECT_NE(refusal([&] { second.clone(foreign.parts()[0]); }).find("another board"),
            std::string::npos);
  EXPECT_NE(refusal([&] { program.run({foreign}); }).find("another board"), std::string::npos);
  twin.run({foreign}).done.wait();
}

TEST(Boards, ArraysMadeOfPiecesThatDoNotFitAreRefused) {
  const Board board = open_board("null");
  const Buffer part = board.put(0, counting(DType::kI32, {16}));
  const Layout layout{{16}, {{0}}, true};
  const Layout two{{16}, {{0}, {16}}, false};
  EXPECT_EQ(Array(DType::kI32, {16}, layout, {part}).to_host().bytes,
            counting(DType::kI32, {16}).bytes);
  refusal([&] { static_cast<void>(Array(DType::kI32, {16}, {}, {part}).to_host()); });
  refusal([&] { static_cast<void>(Array(DType::kI32, {16}, layout, {Buffer()}).to_host()); });
  refusal([&] { static_cast<void>(Array(DType::kI32, {16}, two, {part, part}).to_host()); });
  refusal([&] { static_cast<void>(Array(DType::kI64, {16}, layout, {part}).to_host()); });
  refusal([&] {
    static_cast<void>(Array(DType::kI32, {8}, {{8}, {{0}}, true}, {part}).to_host());
  });
  const Executable program = board.load(passing(1).bytes());
  refusal([&] { program.run({Array(DType::kI32, {16}, layout, {Buffer()})}); });
}

TEST(Boards, ALaunchReachesAllCoresOfALargeBoard) {
  OpenOptions options;
  options.transport = "null";
  options.overrides = {"board.chips=32", "board.torus_x=4"};
  const Board board = Board::open(options);
  test::ProgramBuilder builder(64, "v3_8", options.overrides);
  builder.argument(DType::kI32, {64}, true);
  builder.result(DType::kI32, {64}, true, 0);
  const Executable program = board.load(builder.bytes());
  const HostArray sent = counting(DType::kI32, {64});
  const RunResult result = program.run({program.put(0, sent)});
  EXPECT_EQ(result.outputs[0].parts().size(), 64U);
  EXPECT_EQ(result.outputs[0].to_host().bytes, sent.bytes);
}

#ifdef TPU_HAVE_SIM_TRANSPORT
TEST(Boards, ASecondSimulatedBoardIsRefusedWithTheReason) {
  const auto text = [] {
    return refusal([] { open_board("sim"); }, ErrorCode::kFailedPrecondition);
  };
  const Board first = open_board("sim");
  EXPECT_NE(text().find("SystemC has one kernel a process"), std::string::npos) << text();
  const HostArray sent = counting(DType::kI32, {16});
  EXPECT_EQ(first.put(0, sent).to_host().bytes, sent.bytes) << "the first board goes on";
  EXPECT_EQ(open_board("null").put(0, sent).to_host().bytes, sent.bytes);
  first.close();
  EXPECT_NE(text().find("SystemC has one kernel a process"), std::string::npos) << text();
}
#endif

class ClosedBoard : public ::testing::TestWithParam<const char*> {};

TEST_P(ClosedBoard, EveryCallSaysThatItIsClosed) {
  const Board board = open_board(GetParam());
  const Executable program = board.load(passing(1).bytes());
  const HostArray host = counting(DType::kI32, {16});
  const Array array = program.put(0, host);
  const Buffer buffer = board.put(0, host);
  const Event done = buffer.ready();
  board.close();
  std::vector<std::byte> out(buffer.bytes());
  const std::vector<std::function<void()>> calls = {
      [&] { board.load(passing(1).bytes()); },
      [&] { board.put(0, host); },
      [&] { board.zeros(0, DType::kF32, {4}); },
      [&] { board.clone(buffer); },
      [&] { board.replicate(host); },
      [&] { board.shard(host); },
      [&] { board.now(); },
      [&] { board.counters(); },
      [&] { board.hart_instructions(); },
      [&] { board.run_cycles(); },
      [&] { board.profile(); },
      [&] { board.thread_forecast({1}); },
      [&] { board.synchronize(); },
      [&] { program.put(0, host); },
      [&] { program.run({array}); },
      [&] { buffer.read(out); },
      [&] { static_cast<void>(buffer.to_host()); },
      [&] { static_cast<void>(array.to_host()); },
      [&] { static_cast<void>(array.to_host_checked("x")); },
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_NE(refusal(calls[i], ErrorCode::kFailedPrecondition).find("the board is closed"),
              std::string::npos)
        << "call " << i;
  }
  EXPECT_EQ(done.wait_for_error(), nullptr);
  EXPECT_EQ(board.devices().size(), 8u);
  EXPECT_EQ(board.name(), "v3_8");
  EXPECT_EQ(program.arguments().size(), 1u);
  board.close();
}

INSTANTIATE_TEST_SUITE_P(Null, ClosedBoard, ::testing::Values("null"));
#ifdef TPU_HAVE_SIM_TRANSPORT
INSTANTIATE_TEST_SUITE_P(Sim, ClosedBoard, ::testing::Values("sim"));
#endif

}  // namespace
}  // namespace tpu::driver
