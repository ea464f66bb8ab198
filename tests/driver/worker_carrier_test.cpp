// What carries calls to a board in another process: addresses, sockets, TLS, frames.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <openssl/ssl.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/driver/worker_harness.hpp"
#include "transport/worker/remote_memory.hpp"
#include "transport/worker/tls.hpp"
#include "transport/worker/worker_messages.hpp"

namespace tpu::driver {
namespace {

using namespace std::chrono_literals;
using namespace test;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(WorkerCarrier, RefusesAddressesThatAreNone) {
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

TEST(WorkerCarrier, AListenerThatIsTooBusyToAcceptIsAlive) {
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

TEST(WorkerCarrier, ListensToOtherHostsOnlyWithTls) {
  ServeOptions serve = null_worker("tcp:0.0.0.0:0");
  serve.token = ::testing::TempDir() + "/worker_token";
  EXPECT_THAT(WorkerProcess(serve).address(), HasSubstr("only with TLS"));
  serve.listen = "tcp:127.0.0.1:0";
  serve.token = "";
  EXPECT_THAT(WorkerProcess(serve).address(), HasSubstr("give --token FILE"));
}

TEST(WorkerCarrier, TlsKnowsTheWorkerByItsCertificate) {
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
TEST(WorkerCarrier, ACertificateThatExpiredSinceIsRefusedByTheProgram) {
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

// What it would say goes nowhere: it takes what comes all the same.
TEST(WorkerCarrier, AcknowledgementsDoNotWait) {
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

TEST(WorkerCarrier, AByteNowAndThenDoesNotPutOffTheLimitOfAGreeting) {
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
TEST(WorkerCarrier, AFlippedBitInAFrameBreaksTheConnection) {
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

TEST(WorkerCarrier, ATokenLeavesTheHostOnlyWithTls) {
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

TEST(WorkerCarrier, AnEndThatReadsNothingLosesItsConnection) {
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

// First bytes that are damaged, and greetings behind them, in the clear and where TLS is expected.
TEST(WorkerCarrier, ListensOnBehindWhatIsNoGreeting) {
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

// With TPUBOARD_TEST_SPEED=1 it says how fast: the host decides, so nothing is required.
TEST(WorkerCarrier, CopiesLargeArraysOnEveryCarrier) {
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

TEST(WorkerCarrier, AKeyThatOthersCanReadIsRefused) {
  const Certificate own = certificate(::testing::TempDir(), "readable", 2);
  ServeOptions serve = null_worker("tcp:");
  serve.tls_cert = own.pem;
  serve.tls_key = own.key;
  std::filesystem::permissions(own.key, std::filesystem::perms(0640));
  EXPECT_THAT(WorkerProcess(serve).address(),
              AllOf(HasSubstr("others can read the key (mode 0640)"), HasSubstr("chmod 600")));
  std::filesystem::permissions(own.key, std::filesystem::perms(0600));
  OpenOptions options;
  const WorkerProcess worker(serve);
  options = worker.options(null_board());
  options.connect_ca = own.pem;
  EXPECT_EQ(refusal(options), "");
}

// poll() says nothing of them: they are in the memory of OpenSSL.
TEST(WorkerCarrier, BytesThatTlsHasTakenFromTheSocketAreSeen) {
  const Certificate own = certificate(::testing::TempDir(), "pending", 2);
  const worker::TlsServer server(own.pem, own.key);
  const worker::TlsClient client(own.pem, "127.0.0.1");
  Pair pair;
  std::unique_ptr<worker::Stream> near;
  std::thread shakes([&] { near = client.wrap(std::move(pair.here)); });
  const std::unique_ptr<worker::Stream> far = server.wrap(std::move(pair.there));
  shakes.join();
  constexpr size_t kBytes = 1000;
  worker::Frame frame;
  frame.kind = worker::Kind::kRead;
  std::vector<std::byte> three;  // one record
  for (uint64_t number = 1; number <= 3; ++number) {
    frame.number = number;
    const auto bytes = worker::write_frame(frame, std::vector<std::byte>(kBytes));
    three.insert(three.end(), bytes.begin(), bytes.end());
  }
  far->write(three, -1);
  far->write(std::vector<std::byte>(1), -1);  // another one
  std::vector<std::byte> some(10);
  EXPECT_FALSE(near->has_pending());
  EXPECT_EQ(near->read(some, nullptr), some.size());
  EXPECT_TRUE(near->has_pending());
  for (size_t left = three.size() - some.size() + 1; left > 0;) {
    std::vector<std::byte> rest(left);
    left -= near->read(rest, nullptr);
  }
  EXPECT_FALSE(near->has_pending());
  far->write(three, -1);
  worker::FrameReader reader(*near);
  EXPECT_EQ(reader.next().number, 1U);
  EXPECT_TRUE(reader.has_rest());
  reader.next();
  EXPECT_EQ(reader.next().number, 3U);
  EXPECT_FALSE(reader.has_rest());
}

// The driver's wish that a run ends comes in front of the bytes that the board has asked for.
TEST(WorkerCarrier, AnInterruptInFrontOfTheBytesOfATransferIsKept) {
  const auto fails = [](const std::string& why, uint64_t) -> worker::NextConnection {
    throw Error(ErrorCode::kUnavailable, why);
  };
  for (const bool interrupts : {false, true}) {
    Pair pair;
    auto here = std::make_unique<worker::FrameReader>(*pair.here);
    auto there = std::make_unique<worker::FrameReader>(*pair.there);
    worker::Channel board({std::move(pair.here), std::move(here), 0}, fails);
    worker::Channel driver({std::move(pair.there), std::move(there), 0}, fails);
    int pauses = 0;
    std::vector<bool> wishes;
    worker::RemoteMemory memory(
        board, [&] { ++pauses; }, [&](bool interrupted) { wishes.push_back(interrupted); });
    std::vector<std::byte> sent(300'000);
    for (size_t i = 0; i < sent.size(); ++i) {
      sent[i] = static_cast<std::byte>(i * 7);
    }
    std::thread answers([&] {
      const worker::Message asked = driver.receive();
      ASSERT_EQ(asked.kind, worker::Kind::kDmaRead);
      EXPECT_EQ(worker::unpack<worker::Range>(asked.bytes).bytes, sent.size());
      if (interrupts) {
        driver.post(worker::Kind::kInterrupt, {});
      }
      driver.post_lent(worker::Kind::kDmaData, sent);
      driver.flush();
    });
    const std::span<const std::byte> got = memory.span(0x1000, sent.size(), false);
    answers.join();
    EXPECT_TRUE(std::ranges::equal(got, sent));
    EXPECT_EQ(pauses, 1);
    EXPECT_EQ(wishes, std::vector<bool>{interrupts});
    EXPECT_EQ(memory.trouble(), "");
  }
}

}  // namespace
}  // namespace tpu::driver
