// A board in another process: bits and cycles of one in this process, what is refused, and what
// becomes of a program whose connection breaks.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <openssl/ssl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <string_view>
#include <thread>

#include "board/board_loader.hpp"
#include "exe/executable.hpp"
#include "format/digest.hpp"
#include "tests/driver/copy_program.hpp"
#include "tests/driver/cutting_proxy.hpp"
#include "tests/driver/program_builder.hpp"
#include "tests/driver/worker_process.hpp"
#include "tpu/version.hpp"
#include "transport/worker/address.hpp"
#include "transport/worker/byte_stream.hpp"
#include "transport/worker/channel.hpp"
#include "transport/worker/frame.hpp"
#include "transport/worker/token.hpp"
#include "transport/worker/worker_messages.hpp"
#ifdef TPUC
#include "asm/assembler.hpp"
#endif

namespace tpu::driver {
namespace {

using namespace std::chrono_literals;
using test::counting;
using test::CuttingProxy;
using test::WorkerProcess;
using ::testing::AllOf;
using ::testing::HasSubstr;

ServeOptions null_worker(const std::string& listen = "unix:") {
  ServeOptions serve;
  serve.listen = listen;
  serve.board.transport = "null";
  return serve;
}

OpenOptions null_board() {
  OpenOptions options;
  options.transport = "null";
  return options;
}

/// "Code: text" of the error; empty: there was none.
std::string refusal(const OpenOptions& options) {
  try {
    Board::open(options).close();
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.message();
  }
  return "";
}

/// Data there and back, on every core; what differs is a failure.
void use(const Board& board, uint8_t seed) {
  for (int device = 0; device < 8; ++device) {
    const HostArray sent = counting(DType::kU8, {5000}, static_cast<uint8_t>(seed + device));
    const Buffer buffer = board.put(device, sent);
    EXPECT_EQ(board.copy(buffer, 7 - device).to_host().bytes, sent.bytes) << device;
  }
}

std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Worker, NobodyAnswers) {
  OpenOptions options = null_board();
  options.connect = "unix:/tmp/no-such-socket";
  EXPECT_THAT(refusal(options), AllOf(HasSubstr("Unavailable: nobody answers at unix:/tmp/no-such"),
                                      HasSubstr("tpuboard serve --listen")));
  options.connect = "tcp:127.0.0.1:1";
  EXPECT_THAT(refusal(options), HasSubstr("Unavailable: nobody answers at tcp:127.0.0.1:1"));
}

TEST(Worker, RefusesAddressesThatAreNone) {
  for (const std::string address :
       {"unix:", "tcp:host", "tcp::80", "tcp:a:b", "tcp:a:99999", "udp:a:1", "x"}) {
    OpenOptions options = null_board();
    options.connect = address;
    EXPECT_THAT(refusal(options), AllOf(HasSubstr("InvalidArgument: address '" + address + "'"),
                                        HasSubstr("expected unix:PATH or tcp:HOST:PORT")));
  }
  OpenOptions options = null_board();
  options.connect = "unix:/" + std::string(200, 'a');
  EXPECT_THAT(refusal(options), HasSubstr("the path has 201 bytes"));
}

TEST(Worker, SocketIsForItsUser) {
  const WorkerProcess worker(null_worker());
  struct stat status {};
  ASSERT_EQ(::stat(worker.address().substr(5).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  use(Board::open(worker.options(null_board())), 1);
}

TEST(Worker, ItsAddressGoesWithIt) {
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
TEST(Worker, LeavesASocketAloneThatIsNotItsOwn) {
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

TEST(Worker, AListenerThatIsTooBusyToAcceptIsAlive) {
  const base::Descriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string path = ::testing::TempDir() + "/busy_worker";
  std::filesystem::remove(path);
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::memcpy(at.sun_path, path.c_str(), path.size() + 1);
  ASSERT_EQ(::bind(listener.number(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  ::listen(listener.number(), 0);
  const worker::Address address = worker::read_address("unix:" + path);
  const base::Descriptor first = worker::connect_to(address);  // all that it has room for
  EXPECT_THAT(WorkerProcess(null_worker("unix:" + path)).address(),
              HasSubstr("another worker listens there"));
  std::thread later([&] {
    std::this_thread::sleep_for(200ms);
    ::close(::accept(listener.number(), nullptr, nullptr));
  });
  EXPECT_TRUE(worker::connect_to(address).valid());  // it waits until there is room
  later.join();
  std::filesystem::remove(path);
}

TEST(Worker, BoardOptionsAndTransportsThatDifferAreRefusedWithBothValues) {
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

TEST(Worker, TokensAreNeededAndCompared) {
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

TEST(Worker, ListensToOtherHostsOnlyWithTls) {
  ServeOptions serve = null_worker("tcp:0.0.0.0:0");
  serve.token = ::testing::TempDir() + "/worker_token";
  EXPECT_THAT(WorkerProcess(serve).address(), HasSubstr("only with TLS"));
  serve.listen = "tcp:127.0.0.1:0";
  serve.token = "";
  EXPECT_THAT(WorkerProcess(serve).address(), HasSubstr("give --token FILE"));
}

// With a name or an address, and an age in days.
struct Certificate {
  std::string pem, key;
};
Certificate certificate(const std::string& folder, const std::string& name, int days) {
  const Certificate made{folder + "/" + name + ".pem", folder + "/" + name + ".key"};
  const std::string command =
      "openssl req -new -newkey rsa:2048 -nodes -subj /CN=worker -keyout " + made.key + " -out " +
      made.pem + ".req 2>/dev/null && printf subjectAltName=" +
      (name == "other" ? "DNS:elsewhere" : "IP:127.0.0.1") + " > " + made.pem +
      ".ext && openssl x509 -req -in " + made.pem + ".req -signkey " + made.key + " -days " +
      std::to_string(days) + " -extfile " + made.pem + ".ext -out " + made.pem + " 2>/dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return made;
}

TEST(Worker, TlsKnowsTheWorkerByItsCertificate) {
  const std::string folder = ::testing::TempDir();
  const Certificate good = certificate(folder, "good", 2);
  const Certificate other = certificate(folder, "other", 2);
  const Certificate old = certificate(folder, "old", -1);
  ServeOptions serve = null_worker("tcp:");
  serve.tls_cert = good.pem;
  serve.tls_key = good.key;
  {
    const WorkerProcess worker(serve);
    OpenOptions options = worker.options(null_board());
    EXPECT_THAT(refusal(options), AllOf(HasSubstr("speaks TLS"), HasSubstr("connect_ca")));
    options.connect_ca = other.pem;
    EXPECT_THAT(refusal(options), HasSubstr("the certificate of the worker is rejected"));
    options.connect_ca = good.pem;
    const Board board = Board::open(options);
    use(board, 3);
    const HostArray large = counting(DType::kI32, {3 << 20});
    EXPECT_EQ(board.put(1, large).to_host().bytes, large.bytes);
    board.close();
  }
  {
    const WorkerProcess plain(null_worker("tcp:"));
    OpenOptions options = plain.options(null_board());
    options.connect_ca = good.pem;
    EXPECT_THAT(refusal(options), HasSubstr("speaks no TLS"));
  }
  serve.tls_cert = other.pem;
  serve.tls_key = other.key;
  {
    const WorkerProcess worker(serve);
    OpenOptions options = worker.options(null_board());
    options.connect_ca = other.pem;
    EXPECT_THAT(refusal(options), AllOf(HasSubstr("certificate"), HasSubstr("mismatch")));
  }
  serve.tls_cert = old.pem;
  serve.tls_key = old.key;
  EXPECT_THAT(WorkerProcess(serve).address(), HasSubstr("the certificate has expired"));
  serve.tls_cert = good.pem;
  EXPECT_THAT(WorkerProcess(serve).address(), HasSubstr("expected the key of the certificate"));
}

// The worker refuses to start with one; it can expire later.
TEST(Worker, ACertificateThatExpiredSinceIsRefusedByTheProgram) {
  const Certificate old = certificate(::testing::TempDir(), "expired", -1);
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  ::listen(listener, 1);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size);
  std::thread server([&] {
    const std::unique_ptr<SSL_CTX, decltype(&::SSL_CTX_free)> context(
        ::SSL_CTX_new(::TLS_server_method()), ::SSL_CTX_free);
    ::SSL_CTX_use_certificate_chain_file(context.get(), old.pem.c_str());
    ::SSL_CTX_use_PrivateKey_file(context.get(), old.key.c_str(), SSL_FILETYPE_PEM);
    const int connection = ::accept(listener, nullptr, nullptr);
    worker::Preamble preamble{};
    ::recv(connection, &preamble, sizeof preamble, MSG_WAITALL);
    const worker::PreambleAnswer answer = worker::make_answer(true);
    ::send(connection, &answer, sizeof answer, MSG_NOSIGNAL);
    const std::unique_ptr<SSL, decltype(&::SSL_free)> ssl(::SSL_new(context.get()), ::SSL_free);
    ::SSL_set_fd(ssl.get(), connection);
    ::SSL_accept(ssl.get());
    ::close(connection);
  });
  OpenOptions options = null_board();
  options.connect = "tcp:127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  options.connect_ca = old.pem;
  EXPECT_THAT(refusal(options), AllOf(HasSubstr("FailedPrecondition: the certificate of the worker "
                                                "is rejected"),
                                      HasSubstr("expired")));
  server.join();
  ::close(listener);
}

TEST(Worker, ABoardThatIsTakenIsToldByWhom) {
  const WorkerProcess worker(null_worker());
  Board first = Board::open(worker.options(null_board()));
  EXPECT_THAT(refusal(worker.options(null_board())),
              AllOf(HasSubstr("ResourceExhausted: the board is taken, by pid " +
                              std::to_string(::getpid())),
                    HasSubstr("OpenOptions::connect_wait")));
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

TEST(Worker, HasAsManyBoardsAsItWasToldTo) {
  ServeOptions serve = null_worker();
  serve.boards = 2;
  const WorkerProcess worker(serve);
  const Board first = Board::open(worker.options(null_board()));
  const Board second = Board::open(worker.options(null_board()));
  EXPECT_THAT(refusal(worker.options(null_board())), HasSubstr("all 2 boards are taken"));
  use(first, 1);
  use(second, 9);
}

TEST(Worker, AProgramThatDiesGivesItsBoardBack) {
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
TEST(Worker, FindsEndedSessionsThoughItWasStartedWithSigchldIgnored) {
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

std::chrono::nanoseconds cpu_time(pid_t process) {
  clockid_t clock{};
  timespec time{};
  EXPECT_EQ(::clock_getcpuclockid(process, &clock), 0);
  EXPECT_EQ(::clock_gettime(clock, &time), 0);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Neither for those that have sent a byte, nor for those that it has no descriptors for.
TEST(Worker, WaitsWithoutWork) {
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
    std::this_thread::sleep_for(100ms);
    const auto before = cpu_time(worker.pid());
    std::this_thread::sleep_for(1s);
    EXPECT_LT(cpu_time(worker.pid()) - before, 200ms) << is_full;
    peers.clear();
    use(Board::open(worker.options(null_board())), 2);
  }
}

TEST(Worker, EndsWithANamedErrorWhenTheWorkerIsKilled) {
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

TEST(Worker, SharedMemoryThatDoesNotSufficeIsAnErrorOfOpen) {
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
TEST(Worker, ConnectionsThatSayNothingAreInNobodysWay) {
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
TEST(Worker, PeersThatDoNotSayWhoTheyAreKeepNobodyOut) {
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

/// The two ends of a connection.
struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    here = std::make_unique<worker::SocketStream>(base::Descriptor(ends[0]), true);
    there = std::make_unique<worker::SocketStream>(base::Descriptor(ends[1]), true);
  }
  std::unique_ptr<worker::SocketStream> here, there;
};

// What it would say goes nowhere: it takes what comes all the same.
TEST(Worker, AcknowledgementsDoNotWait) {
  Pair pair;
  const std::vector<char> junk(4096);
  while (::send(pair.here->socket(), junk.data(), junk.size(), MSG_DONTWAIT) > 0) {
  }
  worker::Stream& other = *pair.there;
  auto reader = std::make_unique<worker::FrameReader>(*pair.here);
  worker::Channel channel({std::move(pair.here), std::move(reader), 0},
                          [](const std::string& why, uint64_t) -> worker::NextConnection {
                            throw Error(ErrorCode::kUnavailable, why);
                          });
  constexpr uint64_t kFrames = 4;
  std::thread writer([&] {
    for (uint64_t number = 1; number <= kFrames; ++number) {
      worker::Frame frame;
      frame.kind = worker::Kind::kBlock;
      frame.number = number;
      other.write(worker::write_frame(frame, std::vector<std::byte>(worker::kMostFrameBytes)), -1);
    }
  });
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t number = 1; number <= kFrames; ++number) {
    EXPECT_EQ(channel.receive().bytes.size(), worker::kMostFrameBytes);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 25s);  // not 30 for each
  writer.join();
}

TEST(Worker, AByteNowAndThenDoesNotPutOffTheLimitOfAGreeting) {
  Pair pair;
  pair.here->limit_reads(300ms);
  std::atomic<bool> stopped = false;
  std::thread slow([&] {
    for (int i = 0; i < 200 && !stopped; ++i) {
      std::this_thread::sleep_for(50ms);
      pair.there->write(std::vector<std::byte>(1), -1);
    }
  });
  std::vector<std::byte> room(1);
  try {
    for (int i = 0; i < 100; ++i) {
      pair.here->read(room, nullptr);
    }
    ADD_FAILURE() << "each byte began a limit of its own";
  } catch (const worker::ConnectionLost& lost) {
    EXPECT_THAT(lost.what(), HasSubstr("nothing came in time"));
  }
  stopped = true;
  slow.join();
}

// Whatever bit it is: also one of the version, which is known to be right.
TEST(Worker, AFlippedBitInAFrameBreaksTheConnection) {
  worker::Frame frame;
  frame.kind = worker::Kind::kRead;
  frame.number = 7;
  const std::vector<std::byte> payload(9, std::byte{5});
  const std::vector<std::byte> right = worker::write_frame(frame, payload);
  for (size_t bit = 0; bit < right.size() * 8; ++bit) {
    std::vector<std::byte> bytes = right;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    Pair pair;
    pair.there->write(bytes, -1);
    pair.there->shut_down();
    worker::FrameReader reader(*pair.here);
    EXPECT_THROW(reader.next(), worker::ConnectionLost) << bit;
  }
}

// An address of this host that other hosts can reach; empty: it has none.
std::string outer_address() {
  ifaddrs* all = nullptr;
  EXPECT_EQ(::getifaddrs(&all), 0);
  std::string found;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr != nullptr && each->ifa_addr->sa_family == AF_INET &&
        (each->ifa_flags & IFF_UP) != 0 && (each->ifa_flags & IFF_LOOPBACK) == 0) {
      found = ::inet_ntoa(reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr);
    }
  }
  ::freeifaddrs(all);
  return found;
}

TEST(Worker, ATokenLeavesTheHostOnlyWithTls) {
  const std::string host = outer_address();
  if (host.empty()) {
    GTEST_SKIP() << "this host has loopback addresses alone";
  }
  const base::Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  socklen_t size = sizeof at;
  ASSERT_EQ(::bind(listener.number(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  ::listen(listener.number(), 1);
  ::getsockname(listener.number(), reinterpret_cast<sockaddr*>(&at), &size);
  OpenOptions options = null_board();
  options.connect = "tcp:" + host + ":" + std::to_string(ntohs(at.sin_port));
  options.connect_token = ::testing::TempDir() + "/token_of_a_far_worker";
  std::ofstream(options.connect_token) << std::string(64, 'a') << "\n";
  std::filesystem::permissions(options.connect_token, std::filesystem::perms(0600));
  EXPECT_THAT(refusal(options), AllOf(HasSubstr("InvalidArgument: the token would go to tcp:"),
                                      HasSubstr("OpenOptions::connect_ca")));
  const base::Descriptor connection(::accept(listener.number(), nullptr, nullptr));
  char byte = 0;
  EXPECT_EQ(::recv(connection.number(), &byte, 1, 0), 0);  // nothing was sent
}

TEST(Worker, AnEndThatReadsNothingLosesItsConnection) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const base::Descriptor other(ends[1]);
  worker::SocketStream stream(base::Descriptor(ends[0]), true);
  const timeval soon{0, 100'000};  // instead of 30 seconds
  ::setsockopt(stream.socket(), SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
  try {
    stream.write(std::vector<std::byte>(size_t{16} << 20), -1);
    ADD_FAILURE() << "all was sent";
  } catch (const worker::ConnectionLost& lost) {
    EXPECT_THAT(lost.what(), HasSubstr("the other end has read nothing for"));
  }
}

TEST(Worker, RefusesWhatItCannotDoInWords) {
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

// How many times the environment says, or `usual`.
int times(const char* variable, int usual) {
  const char* text = std::getenv(variable);
  return text == nullptr ? usual : std::atoi(text);
}

/// Cuts behind a random number of bytes, in either direction.
test::Harm cuts_at_random(uint32_t seed, int mean_bytes) {
  struct State {
    std::minstd_rand random;
    int64_t left;
  };
  const auto state = std::make_shared<State>(State{std::minstd_rand(seed), 20'000});
  return [state, mean_bytes](std::vector<char>& bytes, bool /*to_worker*/) {
    const auto size = static_cast<int64_t>(bytes.size());
    if (state->left > size) {
      state->left -= size;
      return false;
    }
    bytes.resize(static_cast<size_t>(state->left));
    state->left = 1 + static_cast<int64_t>(state->random() % static_cast<uint32_t>(2 * mean_bytes));
    return true;
  };
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
TEST(Worker, ASessionIsContinuedOnlyByItsDriver) {
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

// First bytes that are damaged, and greetings behind them, in the clear and where TLS is expected.
TEST(Worker, ListensOnBehindWhatIsNoGreeting) {
  const Certificate own = certificate(::testing::TempDir(), "listens", 2);
  for (const bool tls : {false, true}) {
    ServeOptions serve = null_worker("tcp:");
    OpenOptions options = null_board();
    if (tls) {
      serve.tls_cert = options.connect_ca = own.pem;
      serve.tls_key = own.key;
    }
    const WorkerProcess worker(serve);
    std::minstd_rand random(17);
    for (int i = 0; i < 200; ++i) {
      worker::Preamble preamble = worker::make_preamble(tls, i % 4 == 3 ? random() : 0);
      worker::Frame frame;
      frame.kind = worker::Kind::kHello;
      std::vector<std::byte> bytes =
          worker::write_frame(frame, std::vector<std::byte>(random() % 300, std::byte{1}));
      const auto first = std::as_bytes(std::span(&preamble, 1));
      bytes.insert(bytes.begin(), first.begin(), first.end());
      for (uint64_t flips = random() % 4; flips > 0; --flips) {
        bytes[random() % bytes.size()] ^= static_cast<std::byte>(1U << random() % 8);
      }
      bytes.resize(random() % (bytes.size() + 1));
      worker::SocketStream(worker::connect_to(worker::read_address(worker.address())), false)
          .write(bytes, -1);
    }
    use(Board::open(worker.options(options)), 3);
  }
}

// Bits flipped, bytes sent twice: the frame is found out, and the session goes on.
TEST(Worker, GoesOnBehindDamagedAndReplayedFrames) {
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
TEST(Worker, GoesOnBehindDamagedGreetings) {
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

TEST(Worker, AConnectionThatStaysAwayIsANamedError) {
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

// With TPUBOARD_TEST_SPEED=1 it says how fast: the host decides, so nothing is required.
TEST(Worker, CopiesLargeArraysOnEveryCarrier) {
  const bool tells = times("TPUBOARD_TEST_SPEED", 0) > 0;
  const HostArray sent = counting(DType::kI32, {(tells ? 64 : 5) << 18});
  for (const char* listen : {"", "unix:", "tcp:"}) {
    OpenOptions options = null_board();
    std::unique_ptr<WorkerProcess> worker;
    if (*listen != '\0') {
      worker = std::make_unique<WorkerProcess>(null_worker(listen));
      options = worker->options(options);
    }
    const Board board = Board::open(options);
    Buffer buffer;
    double up = 1e9;
    double down = 1e9;
    for (int turn = 0; turn < (tells ? 5 : 1); ++turn) {
      const auto begin = std::chrono::steady_clock::now();
      buffer = board.put(0, sent);
      board.synchronize();
      const auto middle = std::chrono::steady_clock::now();
      EXPECT_EQ(buffer.to_host().bytes, sent.bytes) << listen;
      up = std::min(up, std::chrono::duration<double>(middle - begin).count());
      down = std::min(
          down, std::chrono::duration<double>(std::chrono::steady_clock::now() - middle).count());
    }
    if (tells) {
      const auto gigabytes = static_cast<double>(sent.bytes.size()) * 1e-9;
      std::printf("%-5s up %.2f GB/s, down %.2f GB/s\n", listen, gigabytes / up, gigabytes / down);
    }
  }
}

#ifdef TPUC
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
// does not end, and a third one transfers.
TEST(Worker, CallsOfOtherThreadsDoNotWaitForALaunch) {
  const Certificate own = certificate(::testing::TempDir(), "calls", 2);
  const std::vector<std::string> overrides = {"mgmt.watchdog_us=4000000"};
  for (const std::string carrier : {"unix", "tcp", "tls"}) {
    ServeOptions serve;
    serve.listen = carrier == "unix" ? "unix:" : "tcp:";
    serve.board.overrides = overrides;
    OpenOptions options;
    options.overrides = overrides;
    options.time_limit = 100;
    if (carrier == "tls") {
      serve.tls_cert = options.connect_ca = own.pem;
      serve.tls_key = own.key;
    }
    const WorkerProcess worker(serve);
    const Board board = Board::open(worker.options(options));
    const std::string text = ".program \"endless\"\n.partitions 1\n" +
                             std::string(test::kCopySlots) + "turn:\n  jmp turn\n  halt\n";
    const Executable endless = board.load(exe::write_executable(compiler::assemble(
                                              text, "test.s", spec::load_board("v3_8", overrides))),
                                          0);
    const Event done = endless.run({endless.put(0, counting(DType::kI32, {1024}))}).done;
    std::thread waits([&] { done.wait_for_error(); });
    std::atomic<bool> stopped = false;
    std::thread transfers([&] {
      for (uint8_t round = 0; !stopped; ++round) {
        const HostArray sent = counting(DType::kU8, {20'000}, round);
        EXPECT_EQ(board.put(2, sent).to_host().bytes, sent.bytes) << carrier;
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
    EXPECT_FALSE(done.ready()) << carrier;
    EXPECT_LT(longest, 20s) << carrier;
    board.close(CloseMode::kCancel);
    waits.join();
  }
}

TEST(Worker, ALostBoardNamesTheLaunchesUnderWay) {
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

// It is not lost: no thread of the worker looks for it yet.
TEST(Worker, AnInterruptThatComesBeforeItsRunEndsTheRun) {
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

INSTANTIATE_TEST_SUITE_P(Programs, WorkerBoard,
                         ::testing::Values("mlp_adam.mlirbc", "collectives.mlirbc"));
#endif

}  // namespace
}  // namespace tpu::driver
