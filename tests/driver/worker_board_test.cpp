// A simulated board in another process: bits and cycles of one in this process, and calls while it
// runs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "exe/executable.hpp"
#include "format/digest.hpp"
#include "tests/driver/copy_program.hpp"
#include "tests/driver/error_code.hpp"
#include "tests/driver/worker_harness.hpp"
#include "tpu/version.hpp"
#include "transport/worker/worker_messages.hpp"

namespace tpu::driver {
namespace {

using namespace std::chrono_literals;
using namespace test;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Compiles a training step of tests/data.
std::vector<std::byte> compiled(const std::string& name, const std::string& folder) {
  const std::string out = folder + "/program.tpuexe";
  const std::string command = std::string(TPUC) + " " + TPU_TEST_DATA + "/" + name + " -o " + out;
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  const std::string text = file_text(out);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// Time, every counter of every core, and the bits of all results, after each of some steps.
std::string train(const Board& board, const std::vector<std::byte>& executable, int steps) {
  std::ostringstream out;
  const Executable program = board.load(executable);
  std::vector<Array> arguments;
  std::minstd_rand random(5);
  for (size_t i = 0; i < program.arguments().size(); ++i) {
    const ParameterInfo& info = program.arguments()[i];
    HostArray array{info.dtype, info.shape, {}};
    array.bytes.resize(byte_count(info.dtype, info.shape));
    if (info.dtype == DType::kF32) {
      for (size_t at = 0; at < array.bytes.size(); at += sizeof(float)) {
        const float value = static_cast<float>(random() % 2001) * 1e-4F - 0.1F;
        std::memcpy(array.bytes.data() + at, &value, sizeof value);
      }
    }
    arguments.push_back(program.put(i, array));
  }
  for (int step = 0; step < steps; ++step) {
    const RunResult result = program.run(arguments);
    result.done.wait();
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (const int to = program.arguments()[i].donated_to; to >= 0) {
        arguments[i] = result.outputs[static_cast<size_t>(to)];
      }
    }
    Digest digest;
    for (const Array& array : result.outputs) {
      digest.add(array.to_host());
    }
    const BoardCounters counters = board.peek();
    out << counters.now_cycles << " " << digest.finish();
    for (const CoreCounters& core : counters.cores) {
      for (const uint64_t counter : core.all) {
        out << " " << counter;
      }
      out << " " << core.hart_instructions << " " << core.times.compute << " " << core.times.stalled
          << " " << core.times.host;
    }
    out << "\n";
  }
  board.close();
  return out.str();
}

class WorkerBoard : public ::testing::TestWithParam<const char*> {};

// The board of this process, behind a Unix socket, behind TCP, behind TCP that is cut.
TEST_P(WorkerBoard, HasTheBitsAndCyclesOfTheBoardInThisProcess) {
  ServeOptions serve;
  serve.board.sim.threads = 2;
  const WorkerProcess local(serve);
  serve.listen = "tcp:";
  const WorkerProcess far(serve);
  const std::vector<std::byte> program = compiled(GetParam(), local.folder());
  constexpr int kSteps = 4;
  const std::string here = train(Board::open(), program, kSteps);
  EXPECT_EQ(train(Board::open(local.options()), program, kSteps), here);
  OpenOptions same = local.options();
  same.sim.threads = 2;
  EXPECT_EQ(train(Board::open(same), program, kSteps), here);  // nothing stays of the first
  EXPECT_EQ(train(Board::open(far.options()), program, kSteps), here);
  CuttingProxy proxy(far.address(), cuts_at_random(7, 100'000));
  OpenOptions options = far.options();
  options.connect = proxy.address();
  EXPECT_EQ(train(Board::open(options), program, kSteps), here);
  EXPECT_GT(proxy.cuts(), 3);
}

// Behind each of the carriers: what one thread calls, while another one waits for a launch that
// does not end, and a third one transfers. Launches that have ended before change nothing.
TEST(WorkerBoards, CallsOfOtherThreadsDoNotWaitForALaunch) {
  const Certificate own = certificate(::testing::TempDir(), "calls", 2);
  const std::vector<std::string> overrides = {"mgmt.watchdog_us=4000000"};
  for (const auto& [carrier, launches_before] :
       {std::pair("unix", 0), std::pair("unix", 1), std::pair("tcp", 2), std::pair("tls", 1)}) {
    const std::string which = fmt::format("{} behind {} launches", carrier, launches_before);
    ServeOptions serve;
    serve.listen = carrier == std::string_view("unix") ? "unix:" : "tcp:";
    serve.board.overrides = overrides;
    OpenOptions options;
    options.overrides = overrides;
    options.time_limit = 100;
    if (carrier == std::string_view("tls")) {
      serve.tls_cert = options.connect_ca = own.pem;
      serve.tls_key = own.key;
    }
    const WorkerProcess worker(serve);
    const Board board = Board::open(worker.options(options));
    const auto load = [&](const std::string& name, const std::string& body) {
      const std::string text =
          fmt::format(".program \"{}\"\n.partitions 1\n{}{}  halt\n", name, test::kCopySlots, body);
      return board.load(exe::write_executable(compiler::assemble(
                            text, "test.s", spec::load_board("v3_8", overrides))),
                        0);
    };
    const Executable nothing = load("nothing", "");
    const Executable endless = load("endless", "turn:\n  jmp turn\n");
    const Array argument = endless.put(0, counting(DType::kI32, {1024}));
    for (int launch = 0; launch < launches_before; ++launch) {
      nothing.run({argument}).done.wait();
    }
    const Event done = endless.run({argument}).done;
    std::thread waits([&] { done.wait_for_error(); });
    std::atomic<bool> stopped = false;
    std::thread transfers([&] {
      for (uint8_t round = 0; !stopped; ++round) {
        const HostArray sent = counting(DType::kU8, {20'000}, round);
        EXPECT_EQ(board.put(2, sent).to_host().bytes, sent.bytes) << which;
      }
    });
    auto longest = std::chrono::steady_clock::duration::zero();
    for (int call = 0; call < 100; ++call) {
      const auto begin = std::chrono::steady_clock::now();
      board.put(1, counting(DType::kI32, {16}));
      longest = std::max(longest, std::chrono::steady_clock::now() - begin);
    }
    stopped = true;
    transfers.join();
    EXPECT_FALSE(done.ready()) << which;
    EXPECT_LT(longest, 20s) << which;
    board.close(CloseMode::kCancel);
    waits.join();
  }
}

TEST(WorkerBoards, ALostBoardNamesTheLaunchesUnderWay) {
  ServeOptions serve;
  serve.listen = "tcp:";
  serve.linger = 300ms;
  WorkerProcess worker(serve);
  const Board board = Board::open(worker.options());
  const std::string text = ".program \"endless\"\n.partitions 1\n" + std::string(test::kCopySlots) +
                           "turn:\n  jmp turn\n  halt\n";
  const Executable endless = board.load(
      exe::write_executable(compiler::assemble(text, "test.s", spec::load_board("v3_8"))), 0);
  const Event done = endless.run({endless.put(0, counting(DType::kI32, {1024}))}).done;
  board.put(1, counting(DType::kI32, {16})).to_host();  // behind the doorbell of the launch
  worker.stop(SIGKILL);
  const auto error = done.wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
  EXPECT_THAT(error->message(), AllOf(HasSubstr("the board was lost at cycle "),
                                      HasSubstr("launches under way: "), HasSubstr("(endless)")));
  board.close();
}

// The end of a launch comes with its interrupt, without an answer; calls behind it have answers.
TEST(WorkerBoards, ACallThatIsRejectedBehindALaunchEndsNothing) {
  ServeOptions serve;
  serve.board.sim.threads = 2;
  const WorkerProcess worker(serve);
  const Board board = Board::open(worker.options());
  const std::string text =
      ".program \"nothing\"\n.partitions 1\n" + std::string(test::kCopySlots) + "  halt\n";
  const Executable program = board.load(
      exe::write_executable(compiler::assemble(text, "test.s", spec::load_board("v3_8"))), 0);
  const Array argument = program.put(0, counting(DType::kI32, {1024}));
  for (int turn = 0; turn < 3; ++turn) {
    program.run({argument}).done.wait();
    SimOptions sim;
    sim.threads = 3;
    EXPECT_EQ(test::code_of([&] { board.change_sim(sim); }), ErrorCode::kInvalidArgument);
  }
  board.close();
}

// It is not lost: no thread of the worker looks for it yet.
TEST(WorkerBoards, AnInterruptThatComesBeforeItsRunEndsTheRun) {
  const WorkerProcess worker{ServeOptions()};
  auto stream = std::make_unique<worker::SocketStream>(
      worker::connect_to(worker::read_address(worker.address())), true);
  const worker::Preamble preamble = worker::make_preamble(false, 0);
  stream->write(std::as_bytes(std::span(&preamble, 1)), -1);
  worker::PreambleAnswer answer{};
  for (auto rest = std::as_writable_bytes(std::span(&answer, 1)); !rest.empty();) {
    rest = rest.subspan(stream->read(rest, nullptr));
  }
  worker::Hello hello;
  hello.version = kVersion;
  worker::Frame frame;
  frame.kind = worker::Kind::kHello;
  stream->write(worker::write_frame(frame, worker::pack(hello)), -1);
  auto reader = std::make_unique<worker::FrameReader>(*stream);
  ASSERT_EQ(reader->next().kind, worker::Kind::kWelcome);
  worker::Channel channel({std::move(stream), std::move(reader), 0},
                          [](const std::string& why, uint64_t) -> worker::NextConnection {
                            throw Error(ErrorCode::kUnavailable, why);
                          });
  worker::Attach attach;
  attach.numbers = worker::board_numbers(spec::load_board("v3_8"));
  attach.transport = "sim";
  channel.post(worker::Kind::kAttach, worker::pack(attach));
  ASSERT_EQ(channel.receive().kind, worker::Kind::kAnswer);
  for (const bool interrupted : {true, false}) {
    if (interrupted) {
      channel.post(worker::Kind::kInterrupt, {});
    }
    channel.post(worker::Kind::kRun,
                 worker::pack(worker::Run{.has_until = true, .until = 100'000}));
    const worker::Message stopped = channel.receive();
    ASSERT_EQ(stopped.kind, worker::Kind::kAnswer);
    const auto got = worker::unpack<worker::Stopped>(stopped.bytes);
    EXPECT_EQ(got.outcome.expired, interrupted);
    EXPECT_EQ(got.now >= 100'000, !interrupted);
  }
}

// Whether a frame of this kind begins in these bytes, which begin with a frame.
bool has_frame(const std::vector<char>& bytes, worker::Kind kind) {
  for (size_t at = 0; at + worker::kHeadBytes <= bytes.size();) {
    const auto head = std::as_bytes(std::span(bytes)).subspan(at, worker::kHeadBytes);
    worker::Frame frame;
    at += worker::kHeadBytes + worker::read_head(head, worker::kMostFrameBytes, frame).bytes;
    if (frame.kind == kind) {
      return true;
    }
  }
  return false;
}

// What a program does when a worker of its pod does not answer, as one that is stopped.
struct Silence {
  const char* name;
  size_t rank;
  worker::Kind kind;  // of what it does not answer
  void (*call)(const Board& board);
};

class PodOfWorkers : public ::testing::TestWithParam<Silence> {};

// The other worker ends meanwhile, also behind its own answer.
TEST_P(PodOfWorkers, AWorkerThatEndsIsNamedWhileAnotherOneIsSilent) {
  OpenOptions options;
  options.overrides = {"board.chips=2", "pod.boards_y=2"};
  ServeOptions serve;
  serve.board.overrides = options.overrides;
  serve.linger = 300ms;
  serve.listen = "tcp:";
  WorkerProcess first(serve);
  options = first.options(options);
  serve.listen = "tcp:127.0.0.1:0";
  serve.token = options.connect_token;
  WorkerProcess second(serve);
  WorkerProcess& other = GetParam().rank == 0 ? second : first;
  std::atomic<bool> asks = false, silent = false, answered = false, over = false;
  const auto pass = [&](std::vector<char>& bytes, bool is_silent, bool to_worker) {
    if (asks && is_silent && to_worker && has_frame(bytes, GetParam().kind)) {
      bytes.clear();
      silent = true;
      while (!over) {
        std::this_thread::sleep_for(1ms);
      }
    }
    answered =
        answered || (asks && !is_silent && !to_worker && has_frame(bytes, worker::Kind::kAnswer));
    return false;
  };
  const CuttingProxy to_first(first.address(), [&](std::vector<char>& bytes, bool to_worker) {
    return pass(bytes, GetParam().rank == 0, to_worker);
  });
  const CuttingProxy to_second(second.address(), [&](std::vector<char>& bytes, bool to_worker) {
    return pass(bytes, GetParam().rank == 1, to_worker);
  });
  options.connect = to_first.address() + "," + to_second.address();
  {
    const Board board = Board::open(options);
    use(board, 1);
    asks = true;
    std::thread ends([&] {
      for (int wait = 0; !over && (!silent || (!answered && wait < 300)); ++wait) {
        std::this_thread::sleep_for(1ms);
      }
      other.stop(SIGKILL);
    });
    try {
      GetParam().call(board);
      board.put(1, counting(DType::kI32, {100})).to_host();
      ADD_FAILURE() << "the board went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
      EXPECT_THAT(error.message(),
                  AllOf(HasSubstr(" of the pod: the board was lost at cycle "),
                        HasSubstr((GetParam().rank == 0 ? to_second : to_first).address())));
    }
    over = true;
    ends.join();
    board.close();
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, WorkerBoard,
                         ::testing::Values("mlp_adam.mlirbc", "collectives.mlirbc"));

// Of a look at all cores, at a core of the silent worker, and of a run.
INSTANTIATE_TEST_SUITE_P(
    Calls, PodOfWorkers,
    ::testing::Values(
        Silence{"counters", 0, worker::Kind::kCall, [](const Board& board) { board.peek(); }},
        Silence{"more_counters", 1, worker::Kind::kCall, [](const Board& board) { board.peek(); }},
        Silence{"word", 1, worker::Kind::kCall,
                [](const Board& board) { board.debug_port().peek_word(7, "seq.STATE"); }},
        Silence{"launch", 0, worker::Kind::kRun, [](const Board&) {}}),
    [](const auto& silence) { return std::string(silence.param.name); });

}  // namespace
}  // namespace tpu::driver
