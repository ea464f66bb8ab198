// Connections between workers that share a pod: who is let in, what is said to the others, and that
// bytes arrive with TLS and without.
#include "transport/worker/pod_sockets.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "socket/descriptor.hpp"
#include "socket/pipe.hpp"
#include "tests/driver/worker_harness.hpp"
#include "tests/driver/worker_process.hpp"
#include "transport/worker/address.hpp"
#include "transport/worker/crew.hpp"
#include "transport/worker/peer_tls.hpp"
#include "transport/worker/pod_meeting.hpp"
#include "transport/worker/token.hpp"

namespace tpu::driver {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::HasSubstr;
using worker::PeerTls;
using worker::PodSockets;

using Pipes = std::vector<std::shared_ptr<base::Pipe>>;

constexpr int kNoConnection = -1;  // listens on loopback

struct Met {
  Pipes low, high;              // of rank 0 and rank 1
  std::string low_text, error;  // what rank 0 says, and rank 1
  std::chrono::nanoseconds took{};
};

// Two ranks, which have a secret and TLS each.
struct Side {
  std::vector<std::byte> secret;
  std::optional<PeerTls> tls{};
};

// Of this process, since tests run beside each other; removed at its end.
struct TestFolder : ::testing::Environment {
  void TearDown() override { std::filesystem::remove_all(path()); }
  static std::string path() {
    return ::testing::TempDir() + "tpuboard-pod-sockets-" + std::to_string(::getpid());
  }
};
[[maybe_unused]] const auto* const kTestFolder =
    ::testing::AddGlobalTestEnvironment(new TestFolder);

std::string test_folder() {
  std::filesystem::create_directories(TestFolder::path());
  return TestFolder::path();
}

std::string text_of(const Error& error) {
  return std::string(error_code_name(error.code())) + ": " + error.message();
}

// The addresses of both, and the hosts that their certificates name.
struct Places {
  std::vector<std::string> addresses;
  std::vector<std::string> names = {"127.0.0.1", "127.0.0.1"};
  int program = kNoConnection;
};

Pipes connect(PodSockets& sockets, uint32_t rank, const Places& places, const Side& side,
              std::string& text) {
  try {
    return sockets.connect(rank, {places.addresses, places.names, side.secret}, side.tls,
                           places.program);
  } catch (const Error& error) {
    text = text_of(error);
    return {};
  }
}

// `again`: rank 1 comes once more, as this side: rank 0 then has what it waits for.
Met meet(const Side& low, const Side& high, const Side* again = nullptr, Places places = {},
         const std::function<void(const std::string& address)>& strangers = {}) {
  const auto begin = std::chrono::steady_clock::now();
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const base::Descriptor worker(ends[0]);
  const base::Descriptor program(ends[1]);
  PodSockets first(kNoConnection, false);
  PodSockets second(kNoConnection, false);
  places.addresses = {first.address(), second.address()};
  Places of_low = places;
  of_low.program = worker.number();
  Met met;
  std::thread listens([&] { met.low = connect(first, 0, of_low, low, met.low_text); });
  if (strangers) {
    strangers(first.address());
  }
  met.high = connect(second, 1, places, high, met.error);
  if (again == nullptr && !met.error.empty()) {
    ::shutdown(ends[1], SHUT_RDWR);  // the program gives the meeting up
  }
  if (again != nullptr) {
    std::string text;
    met.high = connect(second, 1, places, *again, text);
    EXPECT_EQ(text, "");
  }
  listens.join();
  if (met.low_text.empty()) {  // all are there: nobody else gets in
    EXPECT_THROW((void)worker::connect_to(worker::read_address(first.address())), Error);
  }
  met.took = std::chrono::steady_clock::now() - begin;
  return met;
}

// More than the socket holds, in both directions, and a key that is replaced on the way.
void exchange(base::Pipe& a, base::Pipe& b) {
  std::vector<std::byte> sent(3 << 20);
  for (size_t i = 0; i < sent.size(); ++i) {
    sent[i] = static_cast<std::byte>(i * 31 + i / 999);
  }
  struct End {
    base::Pipe* pipe;
    size_t sent = 0;
    std::vector<std::byte> got{};
  };
  End ends[2] = {{&a}, {&b}};
  std::vector<std::byte> room(50'000);
  const auto is_done = [&](const End& end) {
    return end.sent == sent.size() && end.got.size() == sent.size();
  };
  while (!is_done(ends[0]) || !is_done(ends[1])) {
    for (End& end : ends) {
      end.sent += end.pipe->send(std::span(sent).subspan(end.sent));
      const size_t got = end.pipe->receive(room);
      end.got.insert(end.got.end(), room.begin(), room.begin() + static_cast<ptrdiff_t>(got));
    }
  }
  EXPECT_EQ(ends[0].got, sent);
  EXPECT_EQ(ends[1].got, sent);
  a.end();
  EXPECT_TRUE(base::wait_until(b.socket(), POLLIN,
                               std::chrono::steady_clock::now() + std::chrono::seconds(10)));
  EXPECT_THROW(b.receive(room), base::PipeBroken);
}

PeerTls tls_of(const Certificate& own, const std::string& trusted) {
  constexpr uint64_t kRecords = 5;  // of a key
  return {own.pem, own.key, trusted, kRecords};
}

int option_of(const base::Pipe& pipe, int level, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  EXPECT_EQ(::getsockopt(pipe.socket(), level, option, &value, &size), 0);
  return value;
}

// A host that goes dark is noticed; a process that is stopped, whose buffers are full, is waited
// for.
void expect_watched(const base::Pipe& pipe) {
  EXPECT_EQ(option_of(pipe, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_LE(
      option_of(pipe, IPPROTO_TCP, TCP_KEEPIDLE) +
          option_of(pipe, IPPROTO_TCP, TCP_KEEPINTVL) * option_of(pipe, IPPROTO_TCP, TCP_KEEPCNT),
      30);
  EXPECT_EQ(option_of(pipe, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
}

TEST(PodSockets, BytesArriveWithoutTls) {
  const std::vector<std::byte> secret = worker::random_secret();
  const Met met = meet({secret}, {secret});
  ASSERT_EQ(met.low_text + met.error, "");
  EXPECT_EQ(met.low[0], nullptr);
  expect_watched(*met.low[1]);
  expect_watched(*met.high[0]);
  exchange(*met.low[1], *met.high[0]);
}

TEST(PodSockets, BytesArriveWithTls) {
  const Certificate one = certificate(test_folder(), "one", 2);
  const Certificate two = certificate(test_folder(), "two", 2);
  const std::string trusted = file_text(one.pem) + file_text(two.pem);
  const std::vector<std::byte> secret = worker::random_secret();
  const Met met = meet({secret, tls_of(one, trusted)}, {secret, tls_of(two, trusted)});
  ASSERT_EQ(met.low_text + met.error, "");
  EXPECT_NE(dynamic_cast<worker::TlsPipe*>(met.low[1].get()), nullptr);
  EXPECT_NE(dynamic_cast<worker::TlsPipe*>(met.high[0].get()), nullptr);
  expect_watched(*met.low[1]);
  expect_watched(*met.high[0]);
  exchange(*met.low[1], *met.high[0]);
}

// The name of a host can be an unknown one on another host, or lead elsewhere.
TEST(PodSockets, WorkersConnectToAddressesAndVerifyNames) {
  const Certificate other = certificate(test_folder(), "other", 2);  // of "elsewhere"
  const std::string trusted = file_text(other.pem);
  const std::vector<std::byte> secret = worker::random_secret();
  const Side side{secret, tls_of(other, trusted)};
  const Met met = meet(side, side, nullptr, {{}, {"elsewhere", "elsewhere"}});
  ASSERT_EQ(met.low_text + met.error, "");
  exchange(*met.low[1], *met.high[0]);
}

TEST(PodMeeting, WorkersGetTheAddressesTheNamesAndTheCertificatesAlone) {
  const Certificate one = certificate(test_folder(), "one", 2);
  const std::string both = test_folder() + "/with_key.pem";
  std::ofstream(both) << "some text\n" << file_text(one.key) << file_text(one.pem);
  worker::PodMeeting meeting(both, {"tcp:low:7000", "tcp:high:7000"});
  meeting.add(0, "tcp:10.0.0.1:41000", false);
  meeting.add(1, "tcp:10.0.0.2:42000", false);
  const WorkerPart::Addresses all = meeting.all();
  EXPECT_EQ(all.all, (std::vector<std::string>{"tcp:10.0.0.1:41000", "tcp:10.0.0.2:42000"}));
  EXPECT_EQ(all.names, (std::vector<std::string>{"low", "high"}));
  EXPECT_EQ(all.trusted, file_text(one.pem));
}

TEST(PodSockets, AWrongSecretIsNamedAndTheRightOneComesYet) {
  const std::vector<std::byte> secret = worker::random_secret();
  const Side right{secret};
  const Met met = meet({secret}, {worker::random_secret()}, &right);
  EXPECT_THAT(met.error,
              AllOf(HasSubstr("FailedPrecondition: rank 0 of the pod, at tcp:127.0.0.1:"),
                    HasSubstr("its secret is not that of this run")));
  EXPECT_EQ(met.low_text, "");
  exchange(*met.low[1], *met.high[0]);
}

TEST(PodSockets, CertificatesThatAreNotTrustedAreNamed) {
  const std::string folder = test_folder();
  const Certificate one = certificate(folder, "one", 2);
  const Certificate two = certificate(folder, "two", 2);
  const Certificate elsewhere = certificate(folder, "elsewhere", 2, "127.0.0.9");
  const std::string both = file_text(one.pem) + file_text(two.pem);
  const std::vector<std::byte> secret = worker::random_secret();
  const Side right{secret, tls_of(two, both)};

  // Rank 1 does not trust rank 0.
  Met met = meet({secret, tls_of(one, both)}, {secret, tls_of(two, file_text(two.pem))}, &right);
  EXPECT_THAT(met.error, AllOf(HasSubstr("FailedPrecondition: rank 0"),
                               HasSubstr("its certificate is rejected: self-signed certificate")));
  // Rank 0 does not trust rank 1.
  met = meet({secret, tls_of(one, both)},
             {secret, tls_of(elsewhere, both + file_text(elsewhere.pem))}, &right);
  EXPECT_THAT(met.error,
              AllOf(HasSubstr("FailedPrecondition: rank 0"),
                    HasSubstr("it rejects the certificate of this worker: "), HasSubstr("alert")));
  // Rank 0 trusts the certificate, which is that of another host.
  const std::string all = both + file_text(elsewhere.pem);
  met = meet({secret, tls_of(one, all)}, {secret, tls_of(elsewhere, all)}, &right);
  EXPECT_THAT(met.error, AllOf(HasSubstr("FailedPrecondition: rank 0"), HasSubstr("another name")));
  // Rank 1 trusts the certificate of rank 0, which is that of another host.
  met = meet({secret, tls_of(elsewhere, all)}, {secret, tls_of(one, all)});
  EXPECT_THAT(met.error, AllOf(HasSubstr("FailedPrecondition: rank 0"), HasSubstr("mismatch")));
  // What rank 0 says of those that it has rejected.
  EXPECT_THAT(met.low_text,
              AllOf(HasSubstr("Unavailable: 1 processes of the pod have not connected to rank 0 "
                              "before the program has gone"),
                    HasSubstr("a connection from 127.0.0.1 was rejected: ")));
}

// None of them says anything, and there are more than are kept.
TEST(PodSockets, StrangersDoNotDelayWorkers) {
  const Certificate one = certificate(test_folder(), "one", 2);
  const std::vector<std::byte> secret = worker::random_secret();
  const Side encrypted{secret, tls_of(one, file_text(one.pem))};
  const Side plain{secret};
  for (const Side* side : {&plain, &encrypted}) {
    std::vector<base::Descriptor> strangers;
    const Met met = meet(*side, *side, nullptr, {}, [&](const std::string& address) {
      for (int i = 0; i < 100; ++i) {
        strangers.push_back(worker::connect_to(worker::read_address(address)));
      }
    });
    ASSERT_EQ(met.low_text + met.error, "");
    EXPECT_LT(met.took, std::chrono::seconds(5));
    exchange(*met.low[1], *met.high[0]);
  }
}

#ifdef TPU_HAVE_SIM_TRANSPORT
// Certificates of a worker are replaced when the program has known it by the old one: the other
// worker alone does not trust the new one.
class PeersDisagree : public ::testing::TestWithParam<int> {};

TEST_P(PeersDisagree, TheProgramIsToldByWhomAndWhySoon) {
  const std::string folder = test_folder();
  const std::vector<Certificate> own = {certificate(folder, "rank0", 2),
                                        certificate(folder, "rank1", 2)};
  const Certificate next = certificate(folder, "next", 2);
  std::ofstream(folder + "/trusted.pem") << file_text(own[0].pem) << file_text(own[1].pem);
  const std::vector<std::string> two_boards = {"board.chips=2", "pod.boards_y=2"};
  std::vector<std::unique_ptr<WorkerProcess>> workers;
  const std::string token = folder + "/token";
  for (const Certificate& each : own) {
    ServeOptions serve;
    serve.listen = "tcp:127.0.0.1:0";
    serve.token = token;
    serve.board.overrides = two_boards;
    serve.tls_cert = each.pem;
    serve.tls_key = each.key;
    workers.push_back(std::make_unique<WorkerProcess>(serve));
  }
  const auto changed = static_cast<size_t>(GetParam());
  // Behind the handshake: what the program sends then is longer than a record that ends it.
  int came = 0;
  CuttingProxy proxy(workers[changed]->address(), [&](std::vector<char>&, bool to_worker) {
    if (to_worker && ++came == 3) {
      std::filesystem::rename(next.pem, own[changed].pem);
      std::filesystem::rename(next.key, own[changed].key);
    }
    return false;
  });
  OpenOptions options;
  options.overrides = two_boards;
  options.connect = changed == 0 ? proxy.address() + "," + workers[1]->address()
                                 : workers[0]->address() + "," + proxy.address();
  options.connect_token = token;
  options.connect_ca = folder + "/trusted.pem";
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = refusal(options);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_GE(came, 3);
  EXPECT_THAT(text,
              AllOf(HasSubstr("FailedPrecondition: board 1 of the pod: rank 0 of the pod, at "),
                    HasSubstr(changed == 0 ? "its certificate is rejected: self-signed certificate"
                                           : "it rejects the certificate of this worker: ")));
}

INSTANTIATE_TEST_SUITE_P(OfRank, PeersDisagree, ::testing::Values(0, 1));
#endif

TEST(Crew, CallsThatWaitForOneThatHasFailedAreGivenUp) {
  worker::Crew crew(3);
  std::promise<void> end;
  const std::shared_future<void> ends = end.get_future().share();
  int given_up = 0;
  const auto call = [&](size_t rank) {
    if (rank == 1) {
      throw Error(ErrorCode::kInternal, "first");
    }
    ends.wait();
  };
  for (int round = 0; round < 2; ++round) {  // the second one has an end already
    const auto errors = crew.all(call, {std::chrono::milliseconds(10), [&] {
                                          ++given_up;
                                          end.set_value();
                                        }});
    EXPECT_TRUE(errors[1] && !errors[0] && !errors[2]);
    EXPECT_EQ(given_up, 1);
  }
}

// As a worker that ends behind its answer, while another one is stopped.
TEST(Crew, TheEndOfOneThatWaitsForOthersIsFound) {
  worker::Crew crew(3);
  for (const bool meets : {false, true}) {
    std::promise<void> end;
    const std::shared_future<void> ends = end.get_future().share();
    std::atomic<int> looks = 0;
    worker::Rescue rescue;
    rescue.patience = std::chrono::milliseconds(10);
    rescue.give_up = [&] { end.set_value(); };
    rescue.find_end = [&](size_t rank) {
      EXPECT_NE(rank, 0u);  // its call has not ended
      ++looks;
      if (rank == 2) {
        throw Error(ErrorCode::kUnavailable, "ended");
      }
    };
    const auto errors = crew.all(
        [&](size_t rank) {
          if (rank == 0) {
            ends.wait();
          } else if (meets) {
            crew.meet(
                rank, [] {}, [] { return true; });
          }
        },
        rescue);
    EXPECT_TRUE(errors[2] && !errors[0] && !errors[1]) << meets;
    EXPECT_GE(looks, 1) << meets;
  }
  int calls = 0;  // the threads have an end, and another begin
  crew.all([&](size_t rank) {
    if (rank == 0) {
      ++calls;
    }
  });
  EXPECT_EQ(calls, 1);
}

TEST(Crew, OneThatIsSlowIsWaitedFor) {
  worker::Crew crew(2);
  std::atomic<int> looks = 0;
  worker::Rescue rescue;
  rescue.give_up = [] { ADD_FAILURE() << "nothing has failed"; };
  rescue.find_end = [&](size_t) { ++looks; };
  const auto errors = crew.all(
      [&](size_t rank) {
        while (rank == 0 && looks < 2) {
          std::this_thread::yield();
        }
      },
      rescue);
  EXPECT_TRUE(!errors[0] && !errors[1]);
}

TEST(Crew, OthersCanBeGivenUpBehindAnyEnd) {
  worker::Crew crew(3);
  std::promise<void> end;
  const std::shared_future<void> ends = end.get_future().share();
  const auto errors = crew.all(
      [&](size_t rank) {
        if (rank != 1) {
          ends.wait();
        }
      },
      {.patience = std::chrono::milliseconds(10),
       .give_up = [&] { end.set_value(); },
       .behind_any_end = true});
  EXPECT_TRUE(!errors[0] && !errors[1] && !errors[2]);
}

TEST(PodSockets, AnEndWithoutTlsIsNamed) {
  const Certificate one = certificate(test_folder(), "one", 2);
  const std::string trusted = file_text(one.pem);
  const std::vector<std::byte> secret = worker::random_secret();
  const Side right{secret, tls_of(one, trusted)};
  const Met met = meet({secret, tls_of(one, trusted)}, {secret}, &right);
  EXPECT_THAT(met.error, HasSubstr("Unavailable: rank 0 of the pod, at "));
}

TEST(PodSockets, ExpiredCertificatesAreRejected) {
  const std::string folder = test_folder();
  const Certificate old = certificate(folder, "old", -1);
  EXPECT_THAT([&] { tls_of(old, file_text(old.pem)); },
              ::testing::Throws<Error>(
                  ::testing::Property(&Error::message, HasSubstr("the certificate has expired"))));
  // One that expires later than the worker began.
  const Certificate one = certificate(folder, "one", 2);
  const std::unique_ptr<SSL_CTX, decltype(&::SSL_CTX_free)> context(
      ::SSL_CTX_new(::TLS_server_method()), ::SSL_CTX_free);
  ::SSL_CTX_use_certificate_chain_file(context.get(), old.pem.c_str());
  ::SSL_CTX_use_PrivateKey_file(context.get(), old.key.c_str(), SSL_FILETYPE_PEM);
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  base::Descriptor here(ends[0]);
  const base::Descriptor there(ends[1]);
  std::thread server([&] {
    const std::unique_ptr<SSL, decltype(&::SSL_free)> ssl(::SSL_new(context.get()), ::SSL_free);
    ::SSL_set_fd(ssl.get(), there.number());
    ::SSL_accept(ssl.get());
  });
  const PeerTls tls = tls_of(one, file_text(old.pem));
  EXPECT_THAT(
      [&] {
        const auto pipe = tls.connect(std::move(here), "127.0.0.1");
        while (const short events = pipe->shake_hands()) {
          base::wait_until(pipe->socket(), events,
                           std::chrono::steady_clock::now() + std::chrono::seconds(10));
        }
      },
      ::testing::Throws<Error>(::testing::Property(
          &Error::message, HasSubstr("its certificate is rejected: certificate has expired"))));
  server.join();
}

}  // namespace
}  // namespace tpu::driver
