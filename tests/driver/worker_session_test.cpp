// Programs of a worker: what is refused, who has the board, and what becomes of a program whose
// connection breaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/driver/worker_harness.hpp"
#include "tpu/version.hpp"
#include "transport/worker/token.hpp"
#include "transport/worker/worker_messages.hpp"

namespace tpu::driver {
namespace {

using namespace std::chrono_literals;
using namespace test;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(WorkerSession, NobodyAnswers) {
  OpenOptions options = null_board();
  options.connect = "unix:/tmp/no-such-socket";
  EXPECT_THAT(refusal(options), AllOf(HasSubstr("Unavailable: nobody answers at unix:/tmp/no-such"),
                                      HasSubstr("tpuboard serve --listen")));
  options.connect = "tcp:127.0.0.1:1";
  EXPECT_THAT(refusal(options), HasSubstr("Unavailable: nobody answers at tcp:127.0.0.1:1"));
}

TEST(WorkerSession, SocketIsForItsUser) {
  const WorkerProcess worker(null_worker());
  struct stat status {};
  ASSERT_EQ(::stat(worker.address().substr(5).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  use(Board::open(worker.options(null_board())), 1);
}

TEST(WorkerSession, ItsAddressGoesWithIt) {
  WorkerProcess worker(null_worker());
  const WorkerProcess other([&] {
    ServeOptions serve = null_worker();
    serve.listen = worker.address();
    return serve;
  }());
  EXPECT_THAT(other.address(), HasSubstr("another worker listens there"));
  worker.stop(SIGKILL);  // leaves its socket behind
  ServeOptions serve = null_worker();
  serve.listen = worker.address();
  WorkerProcess next(serve);
  EXPECT_EQ(refusal(next.options(null_board())), "");
  next.stop(SIGTERM);
  EXPECT_FALSE(std::filesystem::exists(worker.address().substr(5)));
}

// Its socket was removed, and another worker has the name.
TEST(WorkerSession, LeavesASocketAloneThatIsNotItsOwn) {
  WorkerProcess worker(null_worker());
  const std::string path = worker.address().substr(5);
  std::filesystem::remove(path);
  ServeOptions serve = null_worker();
  serve.listen = worker.address();
  const WorkerProcess next(serve);
  worker.stop(SIGTERM);
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(refusal(next.options(null_board())), "");
}

TEST(WorkerSession, BoardOptionsAndTransportsThatDifferAreRefusedWithBothValues) {
  ServeOptions serve = null_worker();
  serve.board.sim.schedule_seed = 7;
  serve.board.sim.threads = 2;
  const WorkerProcess worker(serve);
  OpenOptions options = worker.options(null_board());
  options.preset = "v2_8";
  EXPECT_THAT(refusal(options), AllOf(HasSubstr("FailedPrecondition"), HasSubstr("v3_8"),
                                      HasSubstr("v2_8"), HasSubstr("OpenOptions::preset")));
  options = worker.options(null_board());
  options.overrides = {"hbm.gbps_per_chip=450"};  // compiled programs do not depend on it
  EXPECT_THAT(refusal(options),
              AllOf(HasSubstr("hbm.gbps_per_chip: the worker has 900, this program asks for 450"),
                    HasSubstr("OpenOptions::overrides")));
  options = worker.options(null_board());
  options.transport = "sim";
  EXPECT_THAT(refusal(options), AllOf(HasSubstr("FailedPrecondition: OpenOptions::transport"),
                                      HasSubstr("null"), HasSubstr("sim")));
  options = worker.options(null_board());
  options.sim.schedule_seed = 8;
  EXPECT_THAT(refusal(options),
              HasSubstr("InvalidArgument: SimOptions::schedule_seed: the worker was started with "
                        "7, this program asks for 8"));
  options = worker.options(null_board());
  options.sim.threads = 3;
  EXPECT_THAT(refusal(options), AllOf(HasSubstr("SimOptions::threads"), HasSubstr("with 2"),
                                      HasSubstr("asks for 3")));
  options = worker.options(null_board());
  options.sim.trace_path = "/tmp/trace.txt";
  EXPECT_THAT(refusal(options), AllOf(HasSubstr("SimOptions::trace_path"), HasSubstr("none"),
                                      HasSubstr("belong to the worker")));
}

TEST(WorkerSession, TokensAreNeededAndCompared) {
  const WorkerProcess worker(null_worker("tcp:"));
  const OpenOptions right = worker.options(null_board());
  EXPECT_EQ(file_text(right.connect_token).size(), 65u);
  EXPECT_EQ(refusal(right), "");
  OpenOptions options = right;
  options.connect_token = "";
  EXPECT_THAT(refusal(options), HasSubstr("FailedPrecondition: the worker needs a token"));
  const std::string other = worker.folder() + "/other";
  std::ofstream(other) << std::string(64, 'a') << "\n";
  options.connect_token = other;
  EXPECT_THAT(refusal(options), AllOf(HasSubstr("FailedPrecondition: token"),
                                      HasSubstr("others can read it (mode 0644); chmod 600")));
  std::filesystem::permissions(other, std::filesystem::perms(0600));
  EXPECT_THAT(refusal(options), HasSubstr("FailedPrecondition: the token is not the worker's"));
  std::ofstream(other) << "abc";
  EXPECT_THAT(refusal(options), HasSubstr("expected 64 hexadecimal digits"));
  options.connect_token = worker.folder() + "/none";
  EXPECT_THAT(refusal(options), HasSubstr("No such file"));
}

TEST(WorkerSession, ABoardThatIsTakenIsToldByWhom) {
  const WorkerProcess worker(null_worker());
  Board first = Board::open(worker.options(null_board()));
  EXPECT_THAT(refusal(worker.options(null_board())),
              AllOf(HasSubstr("ResourceExhausted: the board is taken, by pid " +
                              std::to_string(::getpid())),
                    HasSubstr("OpenOptions::connect_wait"), Not(HasSubstr(" wait)"))));
  OpenOptions patient = worker.options(null_board());
  patient.connect_wait = 0.3;
  EXPECT_THAT(refusal(patient), HasSubstr("ResourceExhausted: the board is taken, by pid"));
  patient.connect_wait = 30;
  std::thread later([&] {
    std::this_thread::sleep_for(200ms);
    first.close();
  });
  use(Board::open(patient), 5);
  later.join();
}

TEST(WorkerSession, HasAsManyBoardsAsItWasToldTo) {
  ServeOptions serve = null_worker();
  serve.boards = 2;
  const WorkerProcess worker(serve);
  const Board first = Board::open(worker.options(null_board()));
  const Board second = Board::open(worker.options(null_board()));
  EXPECT_THAT(refusal(worker.options(null_board())), HasSubstr("all 2 boards are taken"));
  use(first, 1);
  use(second, 9);
}

// `cores`: those of the chips that it leases.
void use_leased(const Board& board, int cores, uint8_t seed) {
  ASSERT_EQ(board.devices().size(), static_cast<size_t>(cores));
  for (int device = 0; device < cores; ++device) {
    const HostArray sent = counting(DType::kU8, {5000}, static_cast<uint8_t>(seed + device));
    EXPECT_EQ(board.put(device, sent).to_host().bytes, sent.bytes) << device;
  }
}

TEST(WorkerSession, ProgramsLeaseChipsOfOneBoard) {
  const WorkerProcess worker(null_worker());
  const auto lease = [&](const std::string& chips, double wait = 0) {
    OpenOptions options = worker.options(null_board());
    options.connect_chips = chips;
    options.connect_wait = wait;
    return options;
  };
  std::optional<Board> first = Board::open(lease("0,1"));
  const Board second = Board::open(lease("3"));
  const Board third = Board::open(lease("2"));
  use_leased(*first, 4, 1);
  use_leased(second, 2, 7);
  use_leased(third, 2, 9);
  EXPECT_THAT(refusal(lease("1,3")),
              AllOf(HasSubstr("ResourceExhausted: chips 1,3 of the board are taken, by pid " +
                              std::to_string(::getpid())),
                    HasSubstr("with chips 0,1"), HasSubstr("with chips 3"),
                    Not(HasSubstr("with chips 2")), HasSubstr("OpenOptions::connect_wait")));
  EXPECT_THAT(refusal(lease("")), HasSubstr("ResourceExhausted: the board is taken, by pid"));
  std::thread later([&] {
    std::this_thread::sleep_for(200ms);
    first->close();
  });
  use_leased(Board::open(lease("0,1", 30)), 4, 5);
  later.join();
  for (const auto& [chips, text] : std::vector<std::pair<std::string, std::string>>{
           {"0,4", "expected numbers of chips from 0 to 3, separated by commas, found '4'"},
           {"0,,1", "found ''"},
           {"a", "found 'a'"},
           {"-1", "found '-1'"},
           {"1,1", "chip 1 is named twice"},
           {"0,3", "expected a rectangle of the torus, which has 2 x 2 chips"},
           {"0,1,2", "expected a rectangle"}}) {
    EXPECT_THAT(refusal(lease(chips)),
                AllOf(HasSubstr("InvalidArgument: OpenOptions::connect_chips '" + chips + "'"),
                      HasSubstr(text)));
  }
  OpenOptions alone = null_board();
  alone.connect_chips = "0";
  EXPECT_THAT(refusal(alone), HasSubstr("OpenOptions::connect_chips needs OpenOptions::connect"));
}

// Of two boards, the second has chips that are taken on the first. A driver that comes later does
// not overtake one that waits for the same chips.
TEST(WorkerSession, LeasesAreGivenInTheOrderOfArrival) {
  ServeOptions serve = null_worker();
  serve.boards = 2;
  const WorkerProcess worker(serve);
  const auto lease = [&](const std::string& chips, double wait = 0) {
    OpenOptions options = worker.options(null_board());
    options.connect_chips = chips;
    options.connect_wait = wait;
    return options;
  };
  std::optional<Board> first = Board::open(lease("0"));
  std::optional<Board> second = Board::open(lease("0,1"));
  EXPECT_THAT(refusal(lease("0")), HasSubstr("chips 0 of all 2 boards are taken"));
  use_leased(Board::open(lease("1,3")), 4, 1);  // of the first board
  std::atomic<bool> whole_came = false;
  std::thread waits([&] {
    const Board whole = Board::open(lease("", 30));
    whole_came = true;
    use(whole, 3);
  });
  std::string text;
  while (
      !text.starts_with("ResourceExhausted: chips 3 of all 2 boards are taken, by drivers that "
                        "wait for them")) {  // the one that waits is known
    text = refusal(lease("3"));
    ASSERT_FALSE(whole_came);
  }
  first->close();
  waits.join();
  EXPECT_TRUE(whole_came);
  second->close();
}

TEST(WorkerSession, AProgramThatDiesGivesItsChipsBack) {
  const WorkerProcess worker(null_worker());
  OpenOptions options = worker.options(null_board());
  options.connect_chips = "2,3";
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const Board board = Board::open(options);
    use_leased(board, 4, 1);
    ::_exit(0);  // closes nothing
  }
  ::waitpid(child, nullptr, 0);
  options.connect_wait = 20;
  use_leased(Board::open(options), 4, 1);
}

TEST(WorkerSession, AProgramThatDiesGivesItsBoardBack) {
  const WorkerProcess worker(null_worker());
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const Board board = Board::open(worker.options(null_board()));
    use(board, 1);
    ::_exit(0);  // closes nothing
  }
  ::waitpid(child, nullptr, 0);
  OpenOptions patient = worker.options(null_board());
  patient.connect_wait = 20;
  const auto begin = std::chrono::steady_clock::now();
  use(Board::open(patient), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 40s);  // not the 60 of --linger
}

// As of a shell or a service manager that ignores it.
TEST(WorkerSession, FindsEndedSessionsThoughItWasStartedWithSigchldIgnored) {
  std::signal(SIGCHLD, SIG_IGN);
  const WorkerProcess worker(null_worker());
  std::signal(SIGCHLD, SIG_DFL);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const Board board = Board::open(worker.options(null_board()));
    use(board, 1);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  OpenOptions patient = worker.options(null_board());
  patient.connect_wait = 50;
  use(Board::open(patient), 1);
}

// Neither for those that have sent a byte, nor for those that it has no descriptors for.
TEST(WorkerSession, WaitsWithoutWork) {
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  int files = 0;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    files = std::max(files, std::stoi(each.path().filename().string()));
  }
  const rlimit few{static_cast<rlim_t>(files) + 16, usual.rlim_max};
  for (const bool is_full : {false, true}) {
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, is_full ? &few : &usual), 0);
    const WorkerProcess worker(null_worker());
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
    std::vector<base::Descriptor> peers;
    for (int i = 0; i < (is_full ? 40 : 1); ++i) {
      peers.push_back(worker::connect_to(worker::read_address(worker.address())));
      EXPECT_EQ(::send(peers.back().number(), "T", 1, MSG_NOSIGNAL), 1);
    }
    // What it does for them may take a while where the host has other work.
    auto second = std::chrono::nanoseconds(1s);
    for (int look = 0; look < 20 && second >= 100ms; ++look) {
      const auto before = cpu_time(worker.pid());
      std::this_thread::sleep_for(1s);
      second = cpu_time(worker.pid()) - before;
    }
    EXPECT_LT(second, 100ms) << is_full;
    peers.clear();
    use(Board::open(worker.options(null_board())), 2);
  }
}

TEST(WorkerSession, EndsWithANamedErrorWhenTheWorkerIsKilled) {
  ServeOptions serve = null_worker("tcp:");
  serve.linger = 300ms;
  WorkerProcess worker(serve);
  const Board board = Board::open(worker.options(null_board()));
  const Buffer buffer = board.put(0, counting(DType::kI32, {100}));
  buffer.to_host();
  worker.stop(SIGKILL);
  try {
    board.put(1, counting(DType::kI32, {100})).to_host();
    ADD_FAILURE() << "the board went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error.message(),
                AllOf(HasSubstr("the board was lost at cycle "), HasSubstr("the worker at tcp:"),
                      HasSubstr("no launch was under way")));
  }
  board.close();
}

// On this host nobody waits for it: --linger is 60 seconds here.
TEST(WorkerSession, AWorkerOfThisHostThatHasEndedIsNotWaitedFor) {
  for (const int signal : {SIGKILL, SIGTERM}) {
    WorkerProcess worker(null_worker());
    const Board board = Board::open(worker.options(null_board()));
    use(board, 1);
    worker.stop(signal);
    const auto begin = std::chrono::steady_clock::now();
    try {
      use(board, 2);
      ADD_FAILURE() << "the board went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
      EXPECT_THAT(error.message(), HasSubstr("has ended"));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
    board.close();
  }
}

TEST(WorkerSession, SharedMemoryThatDoesNotSufficeIsAnErrorOfOpen) {
  const WorkerProcess worker(null_worker());
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &usual), 0);
  const rlimit small{1 << 20, usual.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THAT(refusal(worker.options(null_board())),
              AllOf(HasSubstr("ResourceExhausted: no shared memory of"), HasSubstr("bytes")));
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &usual), 0);
  std::signal(SIGXFSZ, SIG_DFL);
}

// What says nothing has no lease, and ends after some seconds.
TEST(WorkerSession, ConnectionsThatSayNothingAreInNobodysWay) {
  const WorkerProcess worker(null_worker());
  std::vector<std::unique_ptr<base::Descriptor>> silent;
  for (int i = 0; i < 20; ++i) {
    silent.push_back(std::make_unique<base::Descriptor>(
        worker::connect_to(worker::read_address(worker.address()))));
    const worker::Preamble preamble = worker::make_preamble(false, 0);
    const size_t bytes = i % 2 == 0 ? sizeof preamble : 5;  // its greeting is missing, or all
    EXPECT_EQ(::send(silent.back()->number(), &preamble, bytes, MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes));
  }
  const auto begin = std::chrono::steady_clock::now();
  use(Board::open(worker.options(null_board())), 4);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 50s);  // not 5 or 10 for each
}

// More than there may be programs: those that have said who they are go first.
TEST(WorkerSession, PeersThatDoNotSayWhoTheyAreKeepNobodyOut) {
  const WorkerProcess worker(null_worker());
  std::vector<base::Descriptor> silent;
  const worker::Preamble preamble = worker::make_preamble(false, 0);
  for (int i = 0; i < 300; ++i) {
    silent.push_back(worker::connect_to(worker::read_address(worker.address())));
    EXPECT_EQ(::send(silent.back().number(), &preamble, sizeof preamble, MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof preamble));
  }
  use(Board::open(worker.options(null_board())), 4);
}

TEST(WorkerSession, RefusesWhatItCannotDoInWords) {
  const WorkerProcess worker(null_worker());
  const Board board = Board::open(worker.options(null_board()));
  try {
    board.save_snapshot(worker.folder() + "/snap", {});
    ADD_FAILURE() << "a snapshot was saved";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("in another process has no snapshots"));
  }
  use(board, 2);
}

class WorkerCuts : public ::testing::TestWithParam<bool> {};

TEST_P(WorkerCuts, GoesOnOverConnectionsThatAreCut) {
  const int cuts = times("TPUBOARD_TEST_CUTS", 40);
  ServeOptions serve = null_worker("tcp:");
  OpenOptions options = null_board();
  if (GetParam()) {
    const Certificate own = certificate(::testing::TempDir(), "cuts", 2);
    serve.tls_cert = options.connect_ca = own.pem;
    serve.tls_key = own.key;
  }
  const WorkerProcess worker(serve);
  CuttingProxy proxy(worker.address(), cuts_at_random(11, 30'000));
  options = worker.options(options);
  options.connect = proxy.address();
  const Board board = Board::open(options);
  for (uint8_t round = 0; proxy.cuts() < cuts; ++round) {
    use(board, round);
    const HostArray large = counting(DType::kI32, {2000}, round);
    EXPECT_EQ(board.put(round % 8, large).to_host().bytes, large.bytes);
  }
  board.close();
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutTls, WorkerCuts, ::testing::Bool());

// Its number is known, its secret is not.
TEST(WorkerSession, ASessionIsContinuedOnlyByItsDriver) {
  const WorkerProcess worker(null_worker("tcp:"));
  std::atomic<uint64_t> session = 0;
  std::atomic<bool> cut = false;
  CuttingProxy proxy(worker.address(), [&](std::vector<char>& bytes, bool to_worker) {
    worker::Preamble preamble{};
    if (to_worker && bytes.size() == sizeof preamble) {
      std::memcpy(&preamble, bytes.data(), sizeof preamble);
      session = preamble.session;
    }
    return cut.exchange(false);
  });
  OpenOptions options = worker.options(null_board());
  options.connect = proxy.address();
  const Board board = Board::open(options);
  cut = true;
  for (uint8_t round = 0; session == 0; ++round) {
    use(board, round);
  }
  worker::SocketStream stream(worker::connect_to(worker::read_address(worker.address())), false);
  const worker::Preamble preamble = worker::make_preamble(false, session);
  stream.write(std::as_bytes(std::span(&preamble, 1)), -1);
  worker::PreambleAnswer answer{};
  for (auto rest = std::as_writable_bytes(std::span(&answer, 1)); !rest.empty();) {
    rest = rest.subspan(stream.read(rest, nullptr));
  }
  worker::Hello hello;
  hello.version = kVersion;
  hello.token = worker::read_token(options.connect_token);
  hello.session = session;
  hello.secret = worker::random_secret();
  worker::Frame frame;
  frame.kind = worker::Kind::kHello;
  stream.write(worker::write_frame(frame, worker::pack(hello)), -1);
  worker::FrameReader reader(stream);
  const worker::Frame refused = reader.next();
  EXPECT_EQ(refused.kind, worker::Kind::kRefused);
  EXPECT_THAT(worker::error_of(worker::unpack<worker::Failure>(refused.payload)).message(),
              HasSubstr("the session belongs to another driver"));
  use(board, 7);
  board.close();
}

// Bits flipped, bytes sent twice: the frame is found out, and the session goes on.
TEST(WorkerSession, GoesOnBehindDamagedAndReplayedFrames) {
  const WorkerProcess worker(null_worker("tcp:"));
  std::minstd_rand random(3);
  std::atomic<int> harmed = 0;
  int64_t left = 50'000;
  CuttingProxy proxy(worker.address(), [&](std::vector<char>& bytes, bool /*to_worker*/) {
    left -= static_cast<int64_t>(bytes.size());
    if (left > 0) {
      return false;
    }
    left = 20'000 + static_cast<int64_t>(random() % 60'000);
    ++harmed;
    if (random() % 2 == 0) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1U << random() % 8);
    } else {
      const std::vector<char> twice = bytes;
      bytes.insert(bytes.end(), twice.begin(), twice.end());
    }
    return false;
  });
  OpenOptions options = worker.options(null_board());
  options.connect = proxy.address();
  const Board board = Board::open(options);
  for (uint8_t round = 0; harmed < 20; ++round) {
    use(board, round);
    const HostArray large = counting(DType::kI32, {2000}, round);
    EXPECT_EQ(board.put(round % 8, large).to_host().bytes, large.bytes);
  }
  board.close();
}

// A connection that is to replace another one, damaged in its first bytes: the next is tried.
TEST(WorkerSession, GoesOnBehindDamagedGreetings) {
  const WorkerProcess worker(null_worker("tcp:"));
  int preambles = 0;
  int answers = 0;
  std::atomic<int> harmed = 0;
  int64_t left = 30'000;
  const auto flip = [&harmed](std::vector<char>& bytes, size_t bit) {
    bytes[bit / 8] ^= static_cast<char>(1U << bit % 8);
    ++harmed;
  };
  CuttingProxy proxy(worker.address(), [&](std::vector<char>& bytes, bool to_worker) {
    const std::string_view text(bytes.data(), bytes.size());
    if (to_worker && text.starts_with("TPUBOARD")) {
      if (preambles++ % 3 == 1) {
        flip(bytes, static_cast<size_t>(preambles) * 37 % (sizeof(worker::Preamble) * 8));
      }
    } else if (!to_worker && text.size() == sizeof(worker::PreambleAnswer)) {
      if (answers++ % 3 == 2) {
        flip(bytes, static_cast<size_t>(answers) * 31 % (sizeof(worker::PreambleAnswer) * 8));
      }
    }
    left -= static_cast<int64_t>(bytes.size());
    if (left < 0) {
      left = 30'000;
      return true;
    }
    return false;
  });
  OpenOptions options = worker.options(null_board());
  options.connect = proxy.address();
  const Board board = Board::open(options);
  for (uint8_t round = 0; harmed < 20; ++round) {
    use(board, round);
  }
  board.close();
}

TEST(WorkerSession, AConnectionThatStaysAwayIsANamedError) {
  ServeOptions serve = null_worker("tcp:");
  serve.linger = 400ms;
  const WorkerProcess worker(serve);
  CuttingProxy proxy(worker.address(), [](std::vector<char>&, bool) { return false; });
  OpenOptions options = worker.options(null_board());
  options.connect = proxy.address();
  const Board board = Board::open(options);
  use(board, 1);
  proxy.stop();
  try {
    use(board, 2);
    ADD_FAILURE() << "the board went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error.message(), AllOf(HasSubstr("the board was lost at cycle"),
                                       HasSubstr("seconds were allowed for another one")));
  }
  board.close();
  OpenOptions patient = worker.options(null_board());
  patient.connect_wait = 20;
  use(Board::open(patient), 3);  // the lease ended too
}

// They have all places of those that have said nothing, and more.
TEST(WorkerSession, SilentConnectionsMakeRoom) {
  ServeOptions serve = null_worker();
  serve.silence = 1h;  // none ends by itself
  const WorkerProcess worker(serve);
  std::vector<base::Descriptor> silent;
  for (int i = 0; i < 150; ++i) {
    silent.push_back(worker::connect_to(worker::read_address(worker.address())));
  }
  use(Board::open(worker.options(null_board())), 4);
  char byte = 0;
  EXPECT_EQ(::recv(silent.front().number(), &byte, 1, 0), 0);             // the eldest has ended
  EXPECT_EQ(::recv(silent.back().number(), &byte, 1, MSG_DONTWAIT), -1);  // the last has not
}

TEST(WorkerSession, AProgramThatHasStoppedHoldsUpNobodyElse) {
  ServeOptions serve = null_worker();
  serve.boards = 2;
  const WorkerProcess worker(serve);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const Board board = Board::open(worker.options(null_board()));
    for (uint8_t round = 0;; ++round) {
      use(board, round);
    }
  }
  OpenOptions options = worker.options(null_board());
  options.connect_wait = 20;
  Board::open(options).close();  // the child had time to begin
  std::this_thread::sleep_for(100ms);
  ::kill(child, SIGSTOP);
  use(Board::open(worker.options(null_board())), 1);
  use(Board::open(options), 2);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const Board first = Board::open(options);  // the child's board is free too
  use(Board::open(options), 3);
  use(first, 4);
}

// Frames that were lent are sent again, and so are those of which a part was sent.
TEST(WorkerSession, GoesOnOverConnectionsThatAreCutInLongTransfers) {
  const WorkerProcess worker(null_worker("tcp:"));
  CuttingProxy proxy(worker.address(), cuts_at_random(5, 3'000'000));
  OpenOptions options = worker.options(null_board());
  options.connect = proxy.address();
  const Board board = Board::open(options);
  for (uint8_t round = 0; proxy.cuts() < 10; ++round) {
    const HostArray large = counting(DType::kI32, {1 << 20}, round);
    EXPECT_EQ(board.put(round % 8, large).to_host().bytes, large.bytes);
  }
  board.close();
}

// Shorter than --linger: nothing has happened. Both ends notice in their own time.
TEST(WorkerSession, AConnectionThatIsAwayForAWhileGoesOn) {
  ServeOptions serve = null_worker("tcp:");
  serve.linger = 30s;
  const WorkerProcess worker(serve);
  using Clock = std::chrono::steady_clock;
  std::atomic<Clock::time_point> away = Clock::time_point::max();
  CuttingProxy proxy(worker.address(), [&](std::vector<char>& bytes, bool) {
    const Clock::time_point begin = away;
    const bool is_away = Clock::now() >= begin && Clock::now() < begin + 700ms;
    if (is_away) {
      bytes.clear();
    }
    return is_away;
  });
  OpenOptions options = worker.options(null_board());
  options.connect = proxy.address();
  const Board board = Board::open(options);
  use(board, 1);
  away = Clock::now();
  use(board, 2);
  EXPECT_GE(Clock::now() - away.load(), 700ms);
  EXPECT_GT(proxy.cuts(), 0);
  EXPECT_THAT(refusal(worker.options(null_board())), HasSubstr("the board is taken"));
  board.close();
}

}  // namespace
}  // namespace tpu::driver
