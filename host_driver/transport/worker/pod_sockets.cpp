#include "transport/worker/pod_sockets.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "tpu/error.hpp"
#include "transport/worker/address.hpp"
#include "transport/worker/token.hpp"

namespace tpu::driver::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPeersLimit{20};
constexpr std::chrono::seconds kPeerGreetingLimit{2};

// The first bytes of a connection.
struct Greeting {
  static constexpr std::array<char, 8> kMagic = {'T', 'P', 'U', 'W', 'I', 'R', 'E', 'S'};
  static constexpr size_t kSecretBytes = 32;
  std::array<char, 8> magic = kMagic;
  uint64_t rank = 0;
  std::array<std::byte, kSecretBytes> secret{};
};

void send_at_once(const base::Descriptor& socket) {
  const int on = 1;
  ::setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool read_greeting(const base::Descriptor& socket, Greeting& greeting) {
  const timeval limit{kPeerGreetingLimit.count(), 0};
  ::setsockopt(socket.number(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  return ::recv(socket.number(), &greeting, sizeof greeting, MSG_WAITALL) ==
         static_cast<ssize_t>(sizeof greeting);
}

}  // namespace

PodSockets::PodSockets() {
  Address address = read_address("tcp:127.0.0.1:0");
  listener_ = listen_at(address, false);
  address_ = address.text;
}

std::vector<base::Descriptor> PodSockets::connect(uint32_t rank,
                                                  std::span<const std::string> addresses,
                                                  std::span<const std::byte> secret) {
  if (secret.size() != Greeting::kSecretBytes || rank >= addresses.size()) {
    throw Error(ErrorCode::kUnavailable, "the secret of the wires, or the rank, is damaged");
  }
  std::vector<base::Descriptor> sockets(addresses.size());
  Greeting own;
  own.rank = rank;
  std::ranges::copy(secret, own.secret.begin());
  for (uint32_t lower = 0; lower < rank; ++lower) {
    sockets[lower] = connect_to(read_address(addresses[lower]));
    send_at_once(sockets[lower]);
    if (::send(sockets[lower].number(), &own, sizeof own, MSG_NOSIGNAL) !=
        static_cast<ssize_t>(sizeof own)) {
      throw Error(ErrorCode::kUnavailable, fmt::format("rank {} of the pod, at {}: {}", lower,
                                                       addresses[lower], std::strerror(errno)));
    }
  }
  const auto end = Clock::now() + kPeersLimit;
  for (size_t missing = addresses.size() - rank - 1; missing > 0;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd look{listener_.number(), POLLIN, 0};
    if (left <= 0 || ::poll(&look, 1, static_cast<int>(left)) != 1) {
      throw Error(ErrorCode::kUnavailable,
                  fmt::format("{} processes of the pod have not connected to rank {} within {} s",
                              missing, rank, kPeersLimit.count()));
    }
    base::Descriptor socket(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    Greeting other;
    if (!socket.valid() || !read_greeting(socket, other) || other.magic != Greeting::kMagic ||
        !same_secret(other.secret, secret) || other.rank <= rank ||
        other.rank >= addresses.size() || sockets[other.rank].valid()) {
      continue;
    }
    send_at_once(socket);
    sockets[other.rank] = std::move(socket);
    --missing;
  }
  listener_ = base::Descriptor();
  return sockets;
}

}  // namespace tpu::driver::worker
