// Programs that call the host while they run, on the simulated board: bytes, order, errors, and
// simulated time that does not depend on the host's.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <thread>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "tests/driver/copy_program.hpp"
#include "tests/driver/error_code.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using test::counting;

// Call 0 sends the argument, call 1 makes the result.
constexpr const char* kCalls = R"(
.op "send" file="model.py" line=3
.op "recv" file="model.py" line=4
  markb 0
  hcall 0
  hcall 1
  marke 0
  halt
)";

// While one lives, the process may map so much more.
class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(uint64_t more_bytes) {
    getrlimit(RLIMIT_AS, &before_);
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit = before_;
    limit.rlim_cur = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + more_bytes;
    setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressSpaceLimit() { setrlimit(RLIMIT_AS, &before_); }
  AddressSpaceLimit(const AddressSpaceLimit&) = delete;
  AddressSpaceLimit& operator=(const AddressSpaceLimit&) = delete;

 private:
  rlimit before_{};
};

class SimCall : public ::testing::Test {
 protected:
  explicit SimCall(const OpenOptions& options = {}) : board_(Board::open(options)) {}
  void TearDown() override { board_.close(); }

  // `partition` as in HostCallInfo. Calls of another count of elements than 1024 have a slot of
  // their own.
  Executable load(const std::string& code = kCalls, int partitions = 1, int partition = -1,
                  int64_t count = 1024) {
    const std::string scratch = ".slot scratch bytes=" + std::to_string(4 * count) + "\n";
    const std::string text = ".program \"calls\"\n.partitions " + std::to_string(partitions) +
                             "\n" + test::kCopySlots + (count == 1024 ? "" : scratch) + code;
    exe::ExecutableT made =
        compiler::assemble(text, "test.s", spec::load_board("v3_8", std::vector<std::string>{}));
    for (uint32_t i = 0; i < 2; ++i) {
      auto call = std::make_unique<exe::HostCallT>();
      call->channel = 10 + i;
      call->to_host = i == 0;
      call->partition = partition;
      call->elem = exe::Elem::i32;
      call->dims = {count};
      call->slot = count == 1024 ? i : 2;
      call->op = i;
      made.host_calls.push_back(std::move(call));
    }
    return board_.load(exe::write_executable(made), 0);
  }
  // Doubles what comes.
  HostCallHandler doubling() {
    return [this](const HostCallInfo& call, size_t partition, std::span<std::byte> bytes) {
      calls_.emplace_back(call.channel, partition);
      std::vector<int32_t> values(bytes.size() / 4);
      if (call.to_host) {
        std::memcpy(values.data(), bytes.data(), bytes.size());
        for (int32_t& v : values) {
          v *= 2;
        }
        sent_[partition] = values;
        return;
      }
      std::memcpy(bytes.data(), sent_[partition].data(), bytes.size());
    };
  }
  RunOptions with(HostCallHandler handler) {
    RunOptions options;
    options.on_host_call = std::move(handler);
    return options;
  }
  static HostArray twice(HostArray array) {
    std::vector<int32_t> values(array.bytes.size() / 4);
    std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
    for (int32_t& v : values) {
      v *= 2;
    }
    std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
    return array;
  }

  Board board_;
  std::vector<std::pair<int64_t, size_t>> calls_;
  std::map<size_t, std::vector<int32_t>> sent_;
  const HostArray x_ = counting(DType::kI32, {1024});
};

TEST_F(SimCall, ArrayGoesToTheHostAndAnotherComesBack) {
  const Executable program = load();
  ASSERT_EQ(program.host_calls().size(), 2U);
  EXPECT_EQ(program.host_calls()[1].op, "recv");
  EXPECT_EQ(program.host_calls()[1].source, "model.py:4");
  const RunResult result = program.run({program.put(0, x_)}, with(doubling()));
  EXPECT_EQ(result.outputs[0].to_host().bytes, twice(x_).bytes);
  EXPECT_EQ(calls_, (std::vector<std::pair<int64_t, size_t>>{{10, 0}, {11, 0}}));
}

TEST_F(SimCall, CallThatTheTableLacksIsRefusedAtLoad) {
  try {
    load(".op \"send\"\n.op \"recv\"\n  hcall 5\n  halt\n");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(error.message().find("makes host call 5, the table of host calls has 2"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(SimCall, NobodyToAnswerIsRefusedBeforeTheLaunch) {
  const Executable program = load();
  const Array x = program.put(0, x_);
  try {
    program.run({x});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_EQ(error.place().source, "model.py:3");
    EXPECT_NE(error.message().find("has no host callback"), std::string::npos);
  }
  EXPECT_EQ(x.to_host().bytes, x_.bytes);
}

// Launches behind one that waits for the host fill the rings; its own transfers need no room there.
TEST_F(SimCall, ManyLaunchesMayWaitBehindACall) {
  const Executable program = load();
  const Array x = program.put(0, x_);
  std::vector<RunResult> results;
  for (int i = 0; i < 80; ++i) {
    results.push_back(program.run({x}, with(doubling())));
  }
  for (const RunResult& result : results) {
    EXPECT_EQ(result.outputs[0].to_host().bytes, twice(x_).bytes);
  }
  EXPECT_EQ(calls_.size(), 160U);
}

TEST_F(SimCall, BoardTimeDoesNotDependOnTheHost) {
  const Executable program = load();
  const Array x = program.put(0, x_);
  program.run({x}, with(doubling())).done.wait();
  std::vector<uint64_t> cycles;
  for (const int wait_ms : {0, 30, 0}) {
    const uint64_t before = board_.now();
    program
        .run({x}, with([&](const HostCallInfo&, size_t, std::span<std::byte>) {
               std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
             }))
        .done.wait();
    cycles.push_back(board_.now() - before);
  }
  EXPECT_EQ(cycles[0], cycles[1]);
  EXPECT_EQ(cycles[0], cycles[2]);
}

// On a board whose host takes time.
class SimCallTime : public SimCall {
 protected:
  static constexpr uint64_t kDispatch = 1'000'000;
  SimCallTime() : SimCall(slow_host()) {}
  static OpenOptions slow_host() {
    OpenOptions options;
    options.overrides = {"host.dispatch_cycles=" + std::to_string(kDispatch),
                         "host.input_gbps=0.1"};
    return options;
  }
};

TEST_F(SimCallTime, CallsOfWhoAnswersAreFreeAndThoseOfOthersComeBehind) {
  const Executable program = load();
  const Array x = program.put(0, x_);
  x.wait();
  std::thread other;
  std::atomic<bool> dispatched{false};
  RunResult behind;
  const auto answer = [&](const HostCallInfo& call, size_t, std::span<std::byte>) {
    if (!call.to_host) {
      return;
    }
    const uint64_t before = board_.now();
    static_cast<void>(program.put(0, x_));
    other = std::thread([&] {
      behind = program.run({x}, with([](const HostCallInfo&, size_t, std::span<std::byte>) {}));
      dispatched = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(board_.now(), before);
    EXPECT_FALSE(dispatched);
  };
  const RunResult first = program.run({x}, with(answer));
  const uint64_t start = board_.now();
  first.done.wait();
  other.join();
  behind.done.wait();
  EXPECT_GE(board_.now() - start, kDispatch);
}

TEST_F(SimCall, ExceptionEndsTheLaunchAndTheBoardGoesOn) {
  const Executable program = load();
  const Array x = program.put(0, x_);
  for (const int64_t channel : {10, 11}) {
    const RunResult lost =
        program.run({x}, with([&](const HostCallInfo& call, size_t, std::span<std::byte>) {
                      if (call.channel == channel) {
                        throw std::runtime_error("no such row");
                      }
                    }));
    const RunResult behind = program.run({x}, with(doubling()));
    const auto error = lost.done.wait_for_error();
    ASSERT_NE(error, nullptr);
    EXPECT_NE(error->message().find("no such row"), std::string::npos) << error->what();
    EXPECT_EQ(error->place().source, channel == 10 ? "model.py:3" : "model.py:4");
    EXPECT_EQ(behind.outputs[0].to_host().bytes, twice(x_).bytes);
  }
}

TEST_F(SimCall, WhoAnswersMayNotWaitForTheBoard) {
  const Executable program = load();
  const Array x = program.put(0, x_);
  const RunResult lost = program.run(
      {x}, with([&](const HostCallInfo&, size_t, std::span<std::byte>) { x.to_host(); }));
  const auto error = lost.done.wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kFailedPrecondition) << error->what();
  EXPECT_EQ(program.run({x}, with(doubling())).outputs[0].to_host().bytes, twice(x_).bytes);
}

class SimCallSmall : public SimCall {
 protected:
  SimCallSmall() : SimCall(small_staging()) {}
  static OpenOptions small_staging() {
    OpenOptions options;
    options.staging_bytes = 64 << 10;
    return options;
  }
};

// The upload waits for room in the staging memory, as who answers may not: it is not his.
TEST_F(SimCallSmall, WhoAnswersDoesNotSendWhatOthersHaveSubmitted) {
  const Executable program = load();
  const HostEvent gate = board_.make_event();
  const HostArray sent = counting(DType::kI32, {16});
  const Buffer source = board_.put(2, sent);
  const auto bytes = std::make_shared<const std::vector<std::byte>>(1 << 20, std::byte{3});
  const Buffer others = board_.put(1, DType::kU8, {1 << 20}, bytes, {gate.event()});
  Buffer copy;
  RunOptions options;
  options.on_host_call = [&](const HostCallInfo& call, size_t, std::span<std::byte>) {
    if (call.to_host) {
      gate.set();
      copy = board_.copy(source, 2);
    }
  };
  program.run({program.put(0, counting(DType::kI32, {1024}))}, options).done.wait();
  EXPECT_EQ(others.to_host().bytes, *bytes);
  EXPECT_EQ(copy.to_host().bytes, sent.bytes);
}

TEST_F(SimCall, EachCoreCallsForItself) {
  const Executable program = load(kCalls, 4);
  const RunResult result = program.run({program.put(0, x_)}, with(doubling()));
  EXPECT_EQ(result.outputs[0].to_host().bytes, twice(x_).bytes);
  EXPECT_EQ(calls_.size(), 8U);
  EXPECT_EQ(sent_.size(), 4U);
}

TEST_F(SimCall, OneCoreCallsForAll) {
  const Executable program = load(kCalls, 4, 2);
  const RunResult result = program.run({program.put(0, x_)}, with(doubling()));
  for (const Buffer& part : result.outputs[0].parts()) {
    EXPECT_EQ(part.to_host().bytes, twice(x_).bytes);
  }
  EXPECT_EQ(calls_, (std::vector<std::pair<int64_t, size_t>>{{10, 2}, {11, 2}}));
}

// The others wait for a core that ends without coming: nothing is in flight.
TEST_F(SimCall, CallForAllThatACoreLeavesOutIsADeadlock) {
  const Executable program = load(
      ".op \"send\"\n.op \"recv\"\n  rid r1\n  beq r1, r0, end\n  hcall 1\nend:\n  halt\n", 2, 0);
  const RunResult lost = program.run({program.put(0, x_)}, with(doubling()));
  const auto error = lost.done.wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_NE(std::string(error->what()).find("waits for the host to answer call 1"),
            std::string::npos)
      << error->what();
  EXPECT_TRUE(calls_.empty());
}

// All of these stand at calls, or go from one to the next, when another core faults.
TEST_F(SimCall, FaultOfAnotherCoreEndsThoseAtCalls) {
  const std::string fault =
      "  li r3, {}\nspin:\n  addi r3, r3, -1\n  bne r3, r0, spin\n"
      "  li r5, 100000\n  lds32 r6, r5, 4\n  halt\n";
  for (const std::string calls : {"  hcall 0\n  hcall 1\n  jmp calls\n", "  hcall 1\n  halt\n"}) {
    const bool for_all = calls.find("jmp") == std::string::npos;
    for (const int spins : {1, 700, 5000}) {
      const Executable program = load(
          ".op \"send\" file=\"model.py\" line=3\n.op \"recv\"\n  rid r1\n  li r2, 1\n"
          "  beq r1, r2, faults\ncalls:\n" +
              calls + "faults:\n" +
              std::string(fault).replace(fault.find("{}"), 2, std::to_string(spins)),
          4, for_all ? 0 : -1);
      const Array x = program.put(0, x_);
      const RunResult lost = program.run({x}, with(doubling()));
      const auto error = lost.done.wait_for_error();
      ASSERT_NE(error, nullptr);
      EXPECT_EQ(error->code(), ErrorCode::kDeviceFault) << error->what();
      EXPECT_EQ(error->place().device, 1) << error->what();
      if (for_all) {
        EXPECT_TRUE(calls_.empty());
      }
      calls_.clear();
    }
  }
  const Executable program = load();
  EXPECT_EQ(program.run({program.put(0, x_)}, with(doubling())).outputs[0].to_host().bytes,
            twice(x_).bytes);
}

// The program calls for ever: nothing but the end of the board ends it.
TEST_F(SimCall, CloseEndsWhatStandsAtACall) {
  const Executable program = load(".op \"send\"\n.op \"recv\"\ncalls:\n  hcall 0\n  jmp calls\n");
  std::promise<void> called;
  std::atomic<int> calls{0};
  const RunResult open = program.run(
      {program.put(0, x_)}, with([&](const HostCallInfo&, size_t, std::span<std::byte>) {
        if (++calls == 1) {
          called.set_value();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // close() finds it here
      }));
  std::shared_ptr<const Error> error;
  std::thread waits([&] { error = open.done.wait_for_error(); });
  called.get_future().wait();
  board_.close(CloseMode::kCancel);
  waits.join();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kCancelled) << error->what();
}

// Calls of 1 GiB, which the host maps for them, in a process that may map 256 MiB more.
TEST_F(SimCall, HostWithoutRoomForACallIsTheErrorOfTheLaunch) {
  const std::string ops =
      ".op \"send\" file=\"model.py\" line=3\n.op \"recv\" file=\"model.py\" line=4\n";
  const Executable small = load();
  const Array x = small.put(0, x_);
  for (const int call : {0, 1}) {
    const Executable program =
        load(ops + "  hcall " + std::to_string(call) + "\n  halt\n", 1, -1, int64_t{1} << 28);
    const AddressSpaceLimit limit(uint64_t{256} << 20);
    const auto error = program.run({x}, with(doubling())).done.wait_for_error();
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->code(), ErrorCode::kResourceExhausted) << error->what();
    EXPECT_EQ(error->place().source, call == 0 ? "model.py:3" : "model.py:4");
    EXPECT_TRUE(calls_.empty());
  }
  EXPECT_EQ(small.run({x}, with(doubling())).outputs[0].to_host().bytes, twice(x_).bytes);
}

}  // namespace
}  // namespace tpu::driver
