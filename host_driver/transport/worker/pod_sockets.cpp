#include "transport/worker/pod_sockets.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "tpu/error.hpp"
#include "transport/worker/tcp_options.hpp"
#include "transport/worker/token.hpp"

namespace tpu::driver::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPeersLimit{20};
constexpr std::chrono::seconds kPeerGreetingLimit{5};

// The first bytes of a connection, inside TLS where there is TLS.
struct Greeting {
  static constexpr std::array<char, 8> kMagic = {'T', 'P', 'U', 'W', 'I', 'R', 'E', 'S'};
  std::array<char, 8> magic = kMagic;
  uint64_t rank = 0;
  std::array<std::byte, kSecretBytes> secret{};
};

// What becomes of it.
enum class Verdict : uint64_t { kWelcome, kNoGreeting, kSecret, kRank, kName };

const char* text_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kWelcome:
      return "it is welcome";
    case Verdict::kNoGreeting:
      return "it does not begin as a worker";
    case Verdict::kSecret:
      return "its secret is not that of this run";
    case Verdict::kRank:
      return "its rank is wrong, or is connected already";
    case Verdict::kName:
      return "its certificate has another name than the program has for the worker";
  }
  return "an unknown reason";
}

// The end of a connection's own host.
Address own_address(int connection) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  std::array<char, NI_MAXHOST> host{};
  if (::getsockname(connection, reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
      own.ss_family == AF_UNIX ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&own), size, host.data(), host.size(),
                    nullptr, 0, NI_NUMERICHOST) != 0) {
    return read_address("tcp:127.0.0.1:0");
  }
  return read_address(tcp_address(host.data(), "0"));
}

[[noreturn]] void come_too_late() { throw Error(ErrorCode::kUnavailable, "nothing came in time"); }

template <class Value>
void send_all(base::Pipe& pipe, const Value& value, Clock::time_point end) {
  std::span<const std::byte> bytes = std::as_bytes(std::span(&value, 1));
  while (!bytes.empty()) {
    bytes = bytes.subspan(pipe.send(bytes));
    if (!bytes.empty() && !base::wait_until(pipe.socket(), POLLOUT, end)) {
      come_too_late();
    }
  }
}

template <class Value>
void receive_all(base::Pipe& pipe, Value& value, Clock::time_point end) {
  std::span<std::byte> bytes = std::as_writable_bytes(std::span(&value, 1));
  while (!bytes.empty()) {
    const size_t got = pipe.receive(bytes);
    bytes = bytes.subspan(got);
    if (got == 0 && !base::wait_until(pipe.socket(), POLLIN, end)) {
      come_too_late();
    }
  }
}

// Calls, whose errors get the name of the other end in front.
template <class Call>
void with_name(const std::string& name, Call call) {
  try {
    call();
  } catch (const base::PipeBroken& error) {
    throw Error(ErrorCode::kUnavailable, fmt::format("{}: {}", name, error.what()));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", name, error.message()));
  }
}

// One rank of a pod while it meets the others.
class Meeting {
 public:
  Meeting(uint32_t rank, const PodPeers& peers, const std::optional<PeerTls>& tls)
      : rank_(rank), peers_(peers), tls_(tls), pipes_(peers.addresses.size()) {}

  void connect_to_lower() {
    Greeting own;
    own.rank = rank_;
    std::ranges::copy(peers_.secret, own.secret.begin());
    for (uint32_t lower = 0; lower < rank_; ++lower) {
      with_name(fmt::format("rank {} of the pod, at {}", lower, peers_.addresses[lower]), [&] {
        base::Descriptor socket = connect_to(read_address(peers_.addresses[lower]));
        set_tcp_options(socket.number());
        if (tls_) {
          pipes_[lower] = tls_->connect(std::move(socket), peers_.names[lower], end_);
        } else {
          pipes_[lower] = base::make_socket_pipe(std::move(socket));
        }
        send_all(*pipes_[lower], own, end_);
        Verdict verdict{};
        receive_all(*pipes_[lower], verdict, end_);
        if (verdict != Verdict::kWelcome) {
          throw Error(ErrorCode::kFailedPrecondition,
                      fmt::format("it rejects rank {}: {}", rank_, text_of(verdict)));
        }
      });
    }
  }

  void accept_higher(const base::Descriptor& listener) {
    for (size_t missing = pipes_.size() - rank_ - 1; missing > 0;) {
      if (!base::wait_until(listener.number(), POLLIN, end_)) {
        throw Error(
            ErrorCode::kUnavailable,
            fmt::format("{} processes of the pod have not connected to rank {} within {} s{}",
                        missing, rank_, kPeersLimit.count(), rejected_));
      }
      if (accept_one(listener)) {
        --missing;
      }
    }
  }

  std::vector<std::shared_ptr<base::Pipe>> take() { return std::move(pipes_); }

 private:
  // Others than workers of the pod can come as well, and must not end it.
  bool accept_one(const base::Descriptor& listener) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    base::Descriptor socket(
        ::accept4(listener.number(), reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC));
    if (!socket.valid()) {
      return false;
    }
    std::array<char, NI_MAXHOST> host{};
    ::getnameinfo(reinterpret_cast<const sockaddr*>(&from), size, host.data(), host.size(), nullptr,
                  0, NI_NUMERICHOST);
    try {
      const Verdict verdict = greet(std::move(socket));
      if (verdict == Verdict::kWelcome) {
        return true;
      }
      reject(host.data(), text_of(verdict));
    } catch (const base::PipeBroken& error) {
      reject(host.data(), error.what());
    } catch (const Error& error) {
      reject(host.data(), error.message());
    }
    return false;
  }

  void reject(const std::string& host, const std::string& why) {
    rejected_ = fmt::format("; a connection from {} was rejected: {}", host, why);
  }

  Verdict greet(base::Descriptor socket) {
    const auto end = std::min(end_, Clock::now() + kPeerGreetingLimit);
    set_tcp_options(socket.number());
    std::shared_ptr<TlsPipe> encrypted = tls_ ? tls_->accept(std::move(socket), end) : nullptr;
    std::shared_ptr<base::Pipe> pipe = encrypted;
    if (pipe == nullptr) {
      pipe = base::make_socket_pipe(std::move(socket));
    }
    Greeting other;
    receive_all(*pipe, other, end);
    const Verdict verdict = judge(other, encrypted.get());
    send_all(*pipe, verdict, end);
    if (verdict == Verdict::kWelcome) {
      pipes_[other.rank] = std::move(pipe);
    }
    return verdict;
  }

  Verdict judge(const Greeting& other, const TlsPipe* encrypted) const {
    if (other.magic != Greeting::kMagic) {
      return Verdict::kNoGreeting;
    }
    if (!same_secret(other.secret, peers_.secret)) {
      return Verdict::kSecret;
    }
    if (other.rank <= rank_ || other.rank >= pipes_.size() || pipes_[other.rank] != nullptr) {
      return Verdict::kRank;
    }
    return encrypted == nullptr || encrypted->is_of(peers_.names[other.rank]) ? Verdict::kWelcome
                                                                              : Verdict::kName;
  }

  const Clock::time_point end_ = Clock::now() + kPeersLimit;
  const uint32_t rank_;
  const PodPeers& peers_;
  const std::optional<PeerTls>& tls_;
  std::vector<std::shared_ptr<base::Pipe>> pipes_;
  std::string rejected_;
};

}  // namespace

PodSockets::PodSockets(int connection, bool far) : address_(own_address(connection)) {
  listener_ = listen_at(address_, far);
}

bool PodSockets::is_loopback() const { return is_at_loopback(listener_.number()); }

std::vector<std::shared_ptr<base::Pipe>> PodSockets::connect(uint32_t rank, const PodPeers& peers,
                                                             const std::optional<PeerTls>& tls) {
  if (peers.secret.size() != kSecretBytes || rank >= peers.addresses.size() ||
      (tls && peers.names.size() != peers.addresses.size())) {
    throw Error(ErrorCode::kUnavailable,
                "the secret of the wires, the rank, or the names of the workers are damaged");
  }
  Meeting meeting(rank, peers, tls);
  meeting.connect_to_lower();
  meeting.accept_higher(listener_);
  listener_ = base::Descriptor();
  return meeting.take();
}

}  // namespace tpu::driver::worker
