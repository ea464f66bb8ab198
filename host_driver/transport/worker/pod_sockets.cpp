#include "transport/worker/pod_sockets.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <list>
#include <utility>

#include "tpu/error.hpp"
#include "transport/worker/tcp_options.hpp"
#include "transport/worker/token.hpp"

namespace tpu::driver::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPeersLimit{20};
constexpr std::chrono::seconds kPeerGreetingLimit{5};
constexpr std::chrono::seconds kLeftLimit{1};  // behind the end of the program's connection
// Side by side, that have not said what they are: the eldest goes when another one comes.
constexpr size_t kMostGuests = 64;

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

// Calls, whose errors get the name of the other end in front.
template <class Call>
void with_name(const std::string& name, Call call) {
  try {
    call();
  } catch (const CertificateRejected& error) {
    throw Error(ErrorCode::kFailedPrecondition, fmt::format("{}: {}", name, error.what()));
  } catch (const base::PipeBroken& error) {
    throw Error(ErrorCode::kUnavailable, fmt::format("{}: {}", name, error.what()));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", name, error.message()));
  }
}

template <class Value>
std::span<std::byte> bytes_of(Value& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// Who has connected, until it is one of the pod or has gone.
struct Guest {
  std::string host;
  Clock::time_point end;
  std::shared_ptr<base::Pipe> pipe;
  TlsPipe* encrypted = nullptr;  // the pipe, if it has TLS
  short events = POLLIN;         // that it waits for
  bool has_shaken_hands = false;
  bool is_rejected = false;  // it may not have read yet why
  Greeting greeting{};
  size_t greeted = 0;  // bytes of it that have come
};

// One rank of a pod while it meets the others.
class Meeting {
 public:
  Meeting(uint32_t rank, const PodPeers& peers, const std::optional<PeerTls>& tls, int program)
      : rank_(rank), peers_(peers), tls_(tls), program_(program), pipes_(peers.addresses.size()) {}

  void connect_to_lower() {
    for (uint32_t lower = 0; lower < rank_; ++lower) {
      with_name(fmt::format("rank {} of the pod, at {}", lower, peers_.addresses[lower]),
                [&] { pipes_[lower] = greet(lower); });
    }
  }

  // Others than workers of the pod can come as well, and must neither end nor delay it.
  void accept_higher(const base::Descriptor& listener) {
    missing_ = pipes_.size() - rank_ - 1;
    while (missing_ > 0) {
      std::vector<pollfd> all = {{listener.number(), POLLIN, 0}};
      Clock::time_point first_end = end_;
      for (const Guest& guest : guests_) {
        all.push_back({guest.pipe->socket(), guest.events, 0});
        first_end = std::min(first_end, guest.end);
      }
      if (!look(all, first_end)) {
        throw Error(ErrorCode::kUnavailable,
                    fmt::format("{} processes of the pod have not connected to rank {} {}{}",
                                missing_, rank_,
                                is_left_ ? "before the program has gone"
                                         : fmt::format("within {} s", kPeersLimit.count()),
                                rejected_));
      }
      auto guest = guests_.begin();
      for (size_t i = 1; i < all.size(); ++i) {
        guest = all[i].revents == 0 || serve(*guest) ? std::next(guest) : guests_.erase(guest);
      }
      std::erase_if(guests_, [&](const Guest& one) { return is_late(one); });
      if (all.front().revents != 0) {
        take_guest(listener);
      }
    }
  }

  std::vector<std::shared_ptr<base::Pipe>> take() { return std::move(pipes_); }

 private:
  // Until one of these is ready, or `until`. False: the time of the meeting is over.
  bool look(std::vector<pollfd>& all, Clock::time_point until) {
    all.push_back({program_, POLLRDHUP, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    ::poll(all.data(), all.size(), static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (all.back().revents != 0) {  // a connection that broke alone leaves time to meet
      program_ = -1;
      is_left_ = true;
      end_ = std::min(end_, Clock::now() + kLeftLimit);
    }
    all.pop_back();
    return Clock::now() < end_;
  }

  void await(const base::Pipe& pipe, short events) {
    std::vector<pollfd> one = {{pipe.socket(), events, 0}};
    while (look(one, end_)) {
      if (one.front().revents != 0) {
        return;
      }
    }
    throw Error(ErrorCode::kUnavailable,
                is_left_ ? "the program has gone" : "nothing came in time");
  }

  std::shared_ptr<base::Pipe> greet(uint32_t lower) {
    base::Descriptor socket = connect_to(read_address(peers_.addresses[lower]));
    set_tcp_options(socket.number());
    std::shared_ptr<base::Pipe> pipe;
    if (tls_) {
      auto encrypted = tls_->connect(std::move(socket), peers_.names[lower]);
      while (const short events = encrypted->shake_hands()) {
        await(*encrypted, events);
      }
      pipe = std::move(encrypted);
    } else {
      pipe = base::make_socket_pipe(std::move(socket));
    }
    Greeting own;
    own.rank = rank_;
    std::ranges::copy(peers_.secret, own.secret.begin());
    for (std::span<const std::byte> rest = bytes_of(own); !rest.empty();) {
      rest = rest.subspan(pipe->send(rest));
      if (!rest.empty()) {
        await(*pipe, POLLOUT);
      }
    }
    Verdict verdict{};
    for (std::span<std::byte> rest = bytes_of(verdict); !rest.empty();) {
      const size_t got = pipe->receive(rest);
      rest = rest.subspan(got);
      if (got == 0) {
        await(*pipe, POLLIN);
      }
    }
    if (verdict != Verdict::kWelcome) {
      throw Error(ErrorCode::kFailedPrecondition,
                  fmt::format("it rejects rank {}: {}", rank_, text_of(verdict)));
    }
    return pipe;
  }

  void take_guest(const base::Descriptor& listener) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    base::Descriptor socket(
        ::accept4(listener.number(), reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC));
    if (!socket.valid()) {
      return;
    }
    std::array<char, NI_MAXHOST> host{};
    ::getnameinfo(reinterpret_cast<const sockaddr*>(&from), size, host.data(), host.size(), nullptr,
                  0, NI_NUMERICHOST);
    set_tcp_options(socket.number());
    Guest guest;
    guest.host = host.data();
    guest.end = Clock::now() + kPeerGreetingLimit;
    if (tls_) {
      std::shared_ptr<TlsPipe> encrypted = tls_->accept(std::move(socket));
      guest.encrypted = encrypted.get();
      guest.pipe = std::move(encrypted);
    } else {
      guest.pipe = base::make_socket_pipe(std::move(socket));
    }
    if (guests_.size() == kMostGuests) {
      guests_.pop_front();
    }
    guests_.push_back(std::move(guest));
  }

  bool is_late(const Guest& guest) {
    if (Clock::now() < guest.end) {
      return false;
    }
    if (!guest.is_rejected) {
      reject(guest.host, "nothing came in time");
    }
    return true;
  }

  void reject(const std::string& host, const std::string& why) {
    rejected_ = fmt::format("; a connection from {} was rejected: {}", host, why);
  }

  // False: it is no guest any more.
  bool serve(Guest& guest) {
    if (guest.is_rejected) {
      return has_more_to_drop(guest.pipe->socket());
    }
    std::string why;
    try {
      const std::optional<Verdict> verdict = hear(guest);
      if (!verdict) {
        return true;
      }
      answer(guest, *verdict);
      if (*verdict == Verdict::kWelcome) {
        pipes_[guest.greeting.rank] = std::move(guest.pipe);
        --missing_;
        return false;
      }
      why = text_of(*verdict);
    } catch (const base::PipeBroken& error) {
      why = error.what();
    } catch (const Error& error) {
      why = error.message();
    }
    reject(guest.host, why);
    ::shutdown(guest.pipe->socket(), SHUT_WR);
    guest.is_rejected = true;
    guest.events = POLLIN;
    return true;
  }

  // A socket that is closed with bytes that nobody has read takes back what was sent: the reason.
  static bool has_more_to_drop(int socket) {
    std::array<char, 4096> dropped{};
    const ssize_t got = ::recv(socket, dropped.data(), dropped.size(), MSG_DONTWAIT);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
  }

  // Nothing: more is to come.
  std::optional<Verdict> hear(Guest& guest) const {
    if (guest.encrypted != nullptr && !guest.has_shaken_hands) {
      guest.events = guest.encrypted->shake_hands();
      if (guest.events != 0) {
        return std::nullopt;
      }
    }
    guest.has_shaken_hands = true;
    guest.events = POLLIN;
    const std::span<std::byte> greeting = bytes_of(guest.greeting);
    while (guest.greeted < greeting.size()) {
      const size_t got = guest.pipe->receive(greeting.subspan(guest.greeted));
      if (got == 0) {
        return std::nullopt;
      }
      guest.greeted += got;
    }
    return judge(guest.greeting, guest.encrypted);
  }

  // There is room for it: it is the first that is sent.
  static void answer(Guest& guest, Verdict verdict) {
    const std::span<const std::byte> bytes = bytes_of(verdict);
    if (guest.pipe->send(bytes) != bytes.size()) {
      throw Error(ErrorCode::kUnavailable, "it takes no answer");
    }
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

  Clock::time_point end_ = Clock::now() + kPeersLimit;
  const uint32_t rank_;
  const PodPeers& peers_;
  const std::optional<PeerTls>& tls_;
  int program_;           // its connection; -1: there is none
  bool is_left_ = false;  // by the program
  std::vector<std::shared_ptr<base::Pipe>> pipes_;
  std::list<Guest> guests_;  // the eldest first
  size_t missing_ = 0;       // ranks that have not come
  std::string rejected_;
};

}  // namespace

PodSockets::PodSockets(int connection, bool far) : address_(own_address(connection)) {
  listener_ = listen_at(address_, far);
  // A connection can have gone before it is taken.
  ::fcntl(listener_.number(), F_SETFL, ::fcntl(listener_.number(), F_GETFL) | O_NONBLOCK);
}

bool PodSockets::is_loopback() const { return is_at_loopback(listener_.number()); }

std::vector<std::shared_ptr<base::Pipe>> PodSockets::connect(uint32_t rank, const PodPeers& peers,
                                                             const std::optional<PeerTls>& tls,
                                                             int program) {
  if (peers.secret.size() != kSecretBytes || rank >= peers.addresses.size() ||
      (tls && peers.names.size() != peers.addresses.size())) {
    throw Error(ErrorCode::kUnavailable,
                "the secret of the wires, the rank, or the names of the workers are damaged");
  }
  Meeting meeting(rank, peers, tls, program);
  meeting.connect_to_lower();
  meeting.accept_higher(listener_);
  listener_ = base::Descriptor();
  return meeting.take();
}

}  // namespace tpu::driver::worker
