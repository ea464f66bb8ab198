// What every transport must give: boot, copies, launches, donation, order, backpressure and ring
// wrap, errors that change nothing. Programs only halt, so that the same suite runs on all boards.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "tests/driver/error_code.hpp"
#include "tests/driver/program_builder.hpp"
#include "tests/driver/worker_process.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using test::code_of;
using test::counting;
using test::ProgramBuilder;

class Conformance : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const OpenOptions options = test::open_options(GetParam());
    overrides_ = options.overrides;
    board_ = Board::open(options);
  }
  void TearDown() override {
    if (board_.valid()) {
      board_.close();
    }
  }

  /// A program for the board.
  ProgramBuilder program_of(uint32_t partitions) const {
    return ProgramBuilder(partitions, "v3_8", overrides_);
  }

  std::vector<std::string> overrides_;
  Board board_;
};

TEST_P(Conformance, ListsDevicesOfTheBoard) {
  const auto devices = board_.devices();
  ASSERT_EQ(devices.size(), 8u);
  EXPECT_EQ(devices[5].id, 5);
  EXPECT_EQ(devices[5].chip, 2);
  EXPECT_EQ(devices[5].core, 1);
  EXPECT_EQ(devices[5].x, 0);
  EXPECT_EQ(devices[5].y, 1);
  EXPECT_EQ(devices[5].hbm_bytes, uint64_t{16} << 30);
  EXPECT_EQ(board_.name(), "v3_8");
}

TEST_P(Conformance, CopiesComeBackOnEveryDeviceAndSize) {
  int device = 0;
  for (const int64_t count : {0, 1, 3, 4096, 70000, 300001}) {
    const HostArray sent = counting(DType::kU8, {count}, static_cast<uint8_t>(count + 7));
    const Buffer buffer = board_.put(device, sent);
    EXPECT_EQ(buffer.to_host().bytes, sent.bytes) << count;
    device = (device + 3) % 8;
  }
}

TEST_P(Conformance, CopiesLargerThanOnePieceComeBack) {
  const HostArray sent = counting(DType::kI32, {9 << 20});
  EXPECT_EQ(board_.put(1, sent).to_host().bytes, sent.bytes);
}

TEST_P(Conformance, FillAndCloneMakeTheirContents) {
  const HostArray sent = counting(DType::kF32, {333});
  const Buffer buffer = board_.put(2, sent);
  const Buffer copy = board_.clone(buffer);
  const Buffer zero = board_.zeros(2, DType::kBf16, {1001});
  EXPECT_EQ(copy.to_host().bytes, sent.bytes);
  EXPECT_EQ(zero.to_host().bytes, std::vector<std::byte>(2002));
}

// In HBM they are planes of words: an array in several pieces, from and to any byte, cut and
// gathered, cloned and copied.
TEST_P(Conformance, IntegersOf64BitsComeBackAsTheyWere) {
  const HostArray sent = counting(DType::kI64, {(33 << 20) / 8, 3});
  const Buffer buffer = board_.put(1, sent);
  EXPECT_EQ(buffer.to_host().bytes, sent.bytes);
  EXPECT_EQ(board_.clone(buffer).to_host().bytes, sent.bytes);
  for (const auto& [first, bytes] : std::vector<std::pair<uint64_t, size_t>>{
           {0, 8}, {5, 1}, {7, 2}, {12, 100}, {(16 << 20) - 3, 9}, {sent.bytes.size() - 17, 17}}) {
    std::vector<std::byte> out(bytes);
    buffer.read_part(first, out).wait();
    EXPECT_TRUE(
        std::equal(out.begin(), out.end(), sent.bytes.begin() + static_cast<ptrdiff_t>(first)))
        << first;
  }
  const HostArray small = counting(DType::kU64, {16, 5});
  EXPECT_EQ(board_.replicate(small).to_host_checked("x").bytes, small.bytes);
  EXPECT_EQ(board_.shard(small).to_host().bytes, small.bytes);
  EXPECT_EQ(board_.shard(counting(DType::kI64, {3, 16}), 4, 1).to_host().bytes,
            counting(DType::kI64, {3, 16}).bytes);
}

TEST_P(Conformance, ReplicatesAndShards) {
  const HostArray sent = counting(DType::kI32, {16, 5});
  EXPECT_EQ(board_.replicate(sent).to_host_checked("x").bytes, sent.bytes);
  const Array cut = board_.shard(sent);
  EXPECT_EQ(cut.parts()[3].shape(), (Shape{2, 5}));
  EXPECT_EQ(cut.to_host().bytes, sent.bytes);
  const Array columns = board_.shard(counting(DType::kU8, {3, 16}), 4, 1);
  EXPECT_EQ(columns.to_host().bytes, counting(DType::kU8, {3, 16}).bytes);
  EXPECT_EQ(code_of([&] { board_.shard(counting(DType::kU8, {7})); }), ErrorCode::kInvalidArgument);
}

TEST_P(Conformance, DifferenceBetweenReplicasIsAnError) {
  const HostArray sent = counting(DType::kI32, {2, 3});
  HostArray other = sent;
  other.bytes[17] ^= std::byte{0x80};
  std::vector<Buffer> parts = board_.replicate(sent).parts();
  parts[6] = board_.put(6, other);
  const Array mixed(DType::kI32, {2, 3}, board_.replicate(sent).layout(), parts);
  try {
    mixed.to_host_checked("output 0");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_NE(error.message().find("output 0 differs between cores 0 and 6 at element [1,1]"),
              std::string::npos)
        << error.message();
  }
}

TEST_P(Conformance, LaunchOnOneCorePassesADonatedBufferOn) {
  ProgramBuilder builder = program_of(1);
  builder.argument(DType::kF32, {300});
  builder.result(DType::kF32, {300}, false, 0);
  builder.constant({1, 2, 3, 4});
  builder.scratch(1 << 16);
  const Executable program = board_.load(builder.bytes(), 5);
  const HostArray sent = counting(DType::kF32, {300});
  const Array argument = program.put(0, sent);
  EXPECT_EQ(argument.parts()[0].device(), 5);
  const RunResult result = program.run({argument});
  EXPECT_FALSE(argument.parts()[0].live());
  result.done.wait();
  EXPECT_EQ(result.outputs[0].to_host().bytes, sent.bytes);
  EXPECT_EQ(code_of([&] { program.run({argument}); }), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of([&] { argument.to_host(); }), ErrorCode::kFailedPrecondition);
}

TEST_P(Conformance, GangOfEightRunsManyStepsInFlight) {
  ProgramBuilder builder = program_of(8);
  builder.argument(DType::kF32, {8, 100}, true);
  builder.argument(DType::kI32, {10});
  builder.result(DType::kF32, {8, 100}, true, 0);
  const Executable program = board_.load(builder.bytes());
  const HostArray sent = counting(DType::kF32, {8, 100});
  Array state = program.put(0, sent);
  RunResult last;
  for (int i = 0; i < 70; ++i) {  // more than may be in flight
    last = program.run({state, program.put(1, counting(DType::kI32, {10}))});
    state = last.outputs[0];
  }
  EXPECT_EQ(state.to_host().bytes, sent.bytes);
  EXPECT_TRUE(last.done.ready());
  const RunResult many =
      program.run({state, program.put(1, counting(DType::kI32, {10}))}, {.steps = 5, .keep = {}});
  EXPECT_EQ(many.outputs[0].to_host().bytes, sent.bytes);
}

TEST_P(Conformance, KeptArgumentsStayAlive) {
  ProgramBuilder builder = program_of(1);
  builder.argument(DType::kI32, {64});
  builder.result(DType::kI32, {64}, false, 0);
  const Executable program = board_.load(builder.bytes());
  const Array argument = program.put(0, counting(DType::kI32, {64}));
  const RunResult result = program.run({argument}, {.steps = 1, .keep = {0}});
  EXPECT_TRUE(argument.parts()[0].live());
  EXPECT_EQ(result.outputs[0].to_host().bytes, argument.to_host().bytes);
}

TEST_P(Conformance, KeptArgumentsMayBeOneBuffer) {
  ProgramBuilder builder = program_of(1);
  for (int i = 0; i < 2; ++i) {
    builder.argument(DType::kI32, {64});
    builder.result(DType::kI32, {64}, false, i);
  }
  const Executable program = board_.load(builder.bytes());
  const Array argument = program.put(0, counting(DType::kI32, {64}));
  const RunResult result = program.run({argument, argument}, {.steps = 1, .keep = {0, 1}});
  for (const Array& output : result.outputs) {
    EXPECT_EQ(output.to_host().bytes, argument.to_host().bytes);
  }
  // Kept as one of the two, it cannot become a result as the other.
  EXPECT_EQ(code_of([&] {
              program.run({argument, argument}, {.steps = 1, .keep = {1}});
            }),
            ErrorCode::kInvalidArgument);
  EXPECT_TRUE(argument.parts()[0].live());
}

// The wrong argument comes last: of the good ones no copy is made before it is found.
TEST_P(Conformance, RefusedLaunchesSendNothing) {
  ProgramBuilder builder = program_of(1);
  builder.argument(DType::kI32, {64});
  builder.result(DType::kI32, {64}, false, 0);
  const Executable program = board_.load(builder.bytes());
  const Array argument = program.put(0, counting(DType::kI32, {64}));
  board_.synchronize();
  const auto used = [&] { return board_.devices()[0].hbm_used; };
  const uint64_t before = used(), then = board_.now();
  EXPECT_EQ(code_of([&] {
              program.run({argument}, {.steps = 1, .keep = {0, 1}});
            }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(used(), before);
  board_.synchronize();
  EXPECT_EQ(board_.now(), then);
  EXPECT_TRUE(argument.parts()[0].live());
}

TEST_P(Conformance, ReadsAndWritesOfOneBufferKeepTheirOrder) {
  ProgramBuilder builder = program_of(1);
  builder.argument(DType::kI32, {50000});
  builder.result(DType::kI32, {50000}, false, 0);
  const Executable program = board_.load(builder.bytes());
  const HostArray sent = counting(DType::kI32, {50000}, 9);
  Array state = program.put(0, sent);
  std::vector<HostArray> copies(20, HostArray{DType::kI32, {50000}, {}});
  std::vector<Event> events;
  for (HostArray& copy : copies) {
    copy.bytes.resize(sent.bytes.size());
    events.push_back(state.parts()[0].read(copy.bytes));
    state = program.run({state}).outputs[0];
  }
  for (size_t i = 0; i < copies.size(); ++i) {
    events[i].wait();
    EXPECT_EQ(copies[i].bytes, sent.bytes) << i;
  }
}

TEST_P(Conformance, RingsWrapManyTimes) {
  const HostArray sent = counting(DType::kU8, {64});
  std::vector<Buffer> buffers;
  for (int i = 0; i < 1200; ++i) {
    buffers.push_back(board_.put(4, sent));
    if (i % 7 == 0) {
      EXPECT_EQ(buffers[static_cast<size_t>(i) / 2].to_host().bytes, sent.bytes);
    }
  }
  board_.synchronize();
  for (const Buffer& buffer : buffers) {
    EXPECT_TRUE(buffer.ready().ready());
  }
}

TEST_P(Conformance, MemoryComesBackWhenHandlesAreGone) {
  const uint64_t before = board_.devices()[0].hbm_used;
  {
    const Buffer a = board_.put(0, counting(DType::kU8, {1 << 20}));
    const Buffer b = board_.clone(a);
    EXPECT_GE(board_.devices()[0].hbm_used, before + (2 << 20));
  }
  board_.synchronize();
  EXPECT_EQ(board_.devices()[0].hbm_used, before);
}

TEST_P(Conformance, FullMemoryListsTheLargestBuffers) {
  const Buffer big = board_.zeros(3, DType::kU8, {int64_t{10} << 30});
  try {
    board_.zeros(3, DType::kU8, {int64_t{7} << 30});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_EQ(error.place().device, 3);
    for (const char* part : {"ui8[10737418240]", "7516192768 bytes (7.00 GiB)",
                             " bytes (10.00 of 16.00 GiB) are in use"}) {
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
    }
  }
  EXPECT_EQ(board_.put(3, counting(DType::kU8, {10})).to_host().bytes.size(), 10u);
}

TEST_P(Conformance, WrongArgumentsAreRefusedBeforeAnythingIsSent) {
  ProgramBuilder builder = program_of(8);
  builder.argument(DType::kF32, {8, 4}, true);
  builder.argument(DType::kF32, {4});
  builder.result(DType::kF32, {8, 4}, true, 0);
  const Executable program = board_.load(builder.bytes());
  const Array x = program.put(0, counting(DType::kF32, {8, 4}));
  const Array y = program.put(1, counting(DType::kF32, {4}));
  const auto refused = [&](const std::vector<Array>& arguments) {
    return code_of([&] { program.run(arguments); }) == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({x}));
  EXPECT_TRUE(refused({x, y, y}));
  EXPECT_TRUE(refused({y, x}));
  EXPECT_TRUE(refused({board_.replicate(counting(DType::kF32, {8, 4})), y}));
  EXPECT_TRUE(refused({board_.shard(counting(DType::kI32, {8, 4})), y}));
  EXPECT_TRUE(refused({Array(), y}));
  EXPECT_EQ(code_of([&] {
              program.put(0, counting(DType::kF32, {4, 8}));
            }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { program.put(2, counting(DType::kF32, {4})); }),
            ErrorCode::kInvalidArgument);
  EXPECT_TRUE(x.parts()[0].live());
  program.run({x, y}).done.wait();
}

TEST_P(Conformance, ProgramsOfOtherBoardsAndIsasAreRefused) {
  const auto refused = [&](const std::vector<std::byte>& bytes, const std::string& text) {
    try {
      board_.load(bytes);
      ADD_FAILURE() << "loaded; expected: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(error.message().find(text), std::string::npos) << error.message();
    }
  };
  refused(program_of(16).bytes(), "needs 16 cores, this board has 8");
  refused(ProgramBuilder(1, "v3_8", {"core.vmem_kib=8192"}).bytes(), "compiled for another board");
  std::vector<std::string> slower = overrides_;  // differs in speed alone
  slower.emplace_back("hbm.gbps_per_chip=450");
  board_.load(ProgramBuilder(1, "v3_8", slower).bytes());
  ProgramBuilder isa = program_of(1);
  isa.exe().isa_version += 1;
  refused(isa.bytes(), "ISA version");
  std::vector<std::byte> flipped = program_of(1).bytes();
  flipped[100] ^= std::byte{1};
  refused(flipped, "SHA-256");
  flipped.resize(70);
  refused(flipped, "truncated");
  EXPECT_EQ(code_of([&] { board_.load(std::string("/nowhere/x.tpuexe")); }),
            ErrorCode::kInvalidArgument);
  board_.load(program_of(1).bytes()).run({}).done.wait();
}

TEST_P(Conformance, ProgramsTooBigForMemoryAreRefusedWhole) {
  ProgramBuilder builder = program_of(8);
  builder.argument(DType::kF32, {4});
  builder.scratch(uint64_t{17} << 30);
  EXPECT_EQ(code_of([&] { board_.load(builder.bytes()); }), ErrorCode::kResourceExhausted);
  for (const DeviceInfo& device : board_.devices()) {
    EXPECT_EQ(device.hbm_used, 0u);
  }
}

TEST_P(Conformance, ProgramIdsAreUsedAgain) {
  ProgramBuilder builder = program_of(1);
  builder.argument(DType::kF32, {4});
  const auto bytes = builder.bytes();
  for (int i = 0; i < 150; ++i) {
    const Executable program = board_.load(bytes);
    const RunResult result = program.run({program.put(0, counting(DType::kF32, {4}))});
    if (i % 3 == 0) {
      result.done.wait();
    }
  }
}

TEST_P(Conformance, CallbacksRunOnceAndMaySubmitButNotWait) {
  std::atomic<int> calls{0};
  std::atomic<bool> refused{false};
  const Buffer first = board_.put(0, counting(DType::kU8, {100}));
  Buffer second;
  first.ready().on_ready([&](std::shared_ptr<const Error> error) {
    EXPECT_EQ(error, nullptr);
    ++calls;
    second = board_.put(1, counting(DType::kU8, {100}));
    try {
      second.ready().wait();
    } catch (const Error& failure) {
      EXPECT_EQ(failure.code(), ErrorCode::kFailedPrecondition);
      refused = true;
    }
    EXPECT_EQ(code_of([&] { board_.counters(); }), ErrorCode::kFailedPrecondition);
    EXPECT_EQ(code_of([&] { board_.synchronize(); }), ErrorCode::kFailedPrecondition);
    EXPECT_EQ(code_of([&] { board_.load("no.tpuexe"); }), ErrorCode::kFailedPrecondition);
    EXPECT_EQ(code_of([&] { board_.close(); }), ErrorCode::kFailedPrecondition);
  });
  first.ready().wait();
  EXPECT_EQ(calls, 1);
  ASSERT_TRUE(second.valid());
  EXPECT_TRUE(refused || second.ready().ready());
  EXPECT_EQ(second.to_host().bytes, counting(DType::kU8, {100}).bytes);
  first.ready().on_ready([&](std::shared_ptr<const Error>) { ++calls; });
  EXPECT_EQ(calls, 2);
}

TEST_P(Conformance, ThreadsShareTheBoard) {
  ProgramBuilder builder = program_of(1);
  builder.argument(DType::kI32, {256});
  builder.result(DType::kI32, {256}, false, 0);
  const auto bytes = builder.bytes();
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Executable program = board_.load(bytes, t);
      const HostArray sent = counting(DType::kI32, {256}, static_cast<uint8_t>(t + 1));
      for (int i = 0; i < 20; ++i) {
        Array state = program.put(0, sent);
        state = program.run({state}).outputs[0];
        good += state.to_host().bytes == sent.bytes ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(good, 80);
}

TEST_P(Conformance, CountersAndTimeMoveForward) {
  const BoardCounters before = board_.counters();
  board_.put(0, counting(DType::kU8, {100000})).to_host();
  const BoardCounters after = board_.counters();
  ASSERT_EQ(after.cores.size(), 8u);
  EXPECT_GT(after.now_cycles, before.now_cycles);
  EXPECT_GT(after.cores[7].cycles, before.cores[7].cycles);
  EXPECT_EQ(after.recoveries, 0u);
}

TEST_P(Conformance, ClosedBoardsRefuseCalls) {
  const Buffer buffer = board_.put(0, counting(DType::kU8, {10}));
  board_.close();
  EXPECT_EQ(code_of([&] { board_.put(0, counting(DType::kU8, {10})); }),
            ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of([&] { buffer.to_host(); }), ErrorCode::kFailedPrecondition);
  board_.close();
}

TEST_P(Conformance, UnknownDevicesAreRefused) {
  EXPECT_EQ(code_of([&] { board_.put(8, counting(DType::kU8, {1})); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { board_.zeros(-1, DType::kU8, {1}); }), ErrorCode::kInvalidArgument);
}

TEST_P(Conformance, SizesThatOverflowAndBytesThatDoNotMatchAreRefused) {
  constexpr int64_t kHuge = int64_t{1} << 61;
  const std::vector<std::byte> eight(8);
  const auto invalid = [](const std::function<void()>& call) {
    EXPECT_EQ(code_of(call), ErrorCode::kInvalidArgument);
  };
  for (const Shape& shape : {Shape{kHuge}, Shape{2 * kHuge}, Shape{-1}, Shape{kHuge, kHuge},
                             Shape{0, -5}, Shape{INT64_MAX}, Shape{INT64_MIN}}) {
    const HostView view(DType::kF32, shape, {});
    invalid([&] { board_.zeros(0, DType::kF32, shape); });
    invalid([&] { board_.put(0, view); });
    invalid([&] { board_.replicate(view); });
    invalid([&] { board_.shard(view); });
  }
  invalid([&] { board_.zeros(0, static_cast<DType>(99), {2}); });
  invalid([&] { board_.put(0, HostView(static_cast<DType>(99), {2}, eight)); });
  invalid([&] { board_.put(0, HostView(DType::kF32, {3}, eight)); });
  invalid([&] { board_.put(0, HostView(DType::kI64, {2}, eight)); });
  EXPECT_EQ(code_of([&] { board_.zeros(0, DType::kU8, {kHuge}); }), ErrorCode::kResourceExhausted);
  ProgramBuilder builder = program_of(1);
  builder.argument(DType::kF32, {2});
  const Executable program = board_.load(builder.bytes());
  invalid([&] { program.put(0, HostView(DType::kF32, {2}, std::span(eight).first(7))); });
  for (const DeviceInfo& device : board_.devices()) {
    EXPECT_LE(device.hbm_used, uint64_t{64} << 10);
  }
}

INSTANTIATE_TEST_SUITE_P(Null, Conformance, ::testing::ValuesIn(test::null_boards()));
#ifdef TPU_HAVE_SIM_TRANSPORT
INSTANTIATE_TEST_SUITE_P(Sim, Conformance, ::testing::ValuesIn(test::sim_boards()));
INSTANTIATE_TEST_SUITE_P(Pod, Conformance, ::testing::Values("pod_sim"));
#endif

TEST(ErrorCodes, HaveTheirNames) {
  const std::vector<std::pair<ErrorCode, std::string>> names = {
      {ErrorCode::kInvalidArgument, "InvalidArgument"},
      {ErrorCode::kFailedPrecondition, "FailedPrecondition"},
      {ErrorCode::kUnimplemented, "Unimplemented"},
      {ErrorCode::kResourceExhausted, "ResourceExhausted"},
      {ErrorCode::kCancelled, "Cancelled"},
      {ErrorCode::kUnavailable, "Unavailable"},
      {ErrorCode::kDeviceFault, "DeviceFault"},
      {ErrorCode::kTimeout, "Timeout"},
      {ErrorCode::kInternal, "Internal"}};
  for (const auto& [code, name] : names) {
    EXPECT_EQ(error_code_name(code), name);
    EXPECT_EQ(Error(code, "text").what(), name + ": text");
  }
}

TEST(BoardOpen, WorksAtTheLimitsOfEveryKeyOrNamesIt) {
  const HostArray sent = counting(DType::kU8, {3000});
  int opened = 0;
  for (const spec::BoardKey& key : spec::kBoardKeys) {
    if (key.number == nullptr) {
      continue;
    }
    const std::string name = std::string(key.section) + "." + std::string(key.name);
    for (const int64_t value : {key.min, key.max}) {
      OpenOptions options;
      options.transport = "null";
      options.overrides = {name + "=" + std::to_string(value)};
      try {
        const Board board = Board::open(options);
        const int last = static_cast<int>(board.devices().size()) - 1;
        EXPECT_EQ(board.copy(board.put(0, sent), last).to_host().bytes, sent.bytes)
            << options.overrides[0];
        ++opened;
      } catch (const Error& error) {
        EXPECT_TRUE(error.code() == ErrorCode::kInvalidArgument ||
                    error.code() == ErrorCode::kUnimplemented)
            << error.what();
        EXPECT_NE(error.message().find(name), std::string::npos) << error.what();
      }
    }
  }
  EXPECT_GT(opened, 100);
}

TEST(BoardOpen, RefusesUnknownTransportsAndBoards) {
  OpenOptions options;
  options.transport = "carrier_pigeon";
  EXPECT_THROW(Board::open(options), Error);
  options.transport = "null";
  options.preset = "v9";
  EXPECT_THROW(Board::open(options), Error);
  options.preset = "v3_8";
  options.overrides = {"mxu.rows=33"};
  EXPECT_THROW(Board::open(options), Error);
  options.overrides = {"hbm.gib_per_core=8"};
  EXPECT_EQ(Board::open(options).devices()[0].hbm_bytes, uint64_t{8} << 30);
}

}  // namespace
}  // namespace tpu::driver
