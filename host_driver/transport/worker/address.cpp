#include "transport/worker/address.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <thread>

#include "file/crc32c.hpp"
#include "tpu/error.hpp"
#include "transport/worker/frame.hpp"

namespace tpu::driver::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kConnectLimit{10'000};
constexpr std::chrono::milliseconds kPause{10};
constexpr int kLockTries = 300;
constexpr int kBacklog = 64;

[[noreturn]] void refuse_address(const std::string& text, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("address '{}': {}; expected unix:PATH or tcp:HOST:PORT", text, why));
}

[[noreturn]] void nobody(const Address& address, const std::string& why) {
  throw Error(ErrorCode::kUnavailable,
              fmt::format("nobody answers at {}: {}; a worker is started with: tpuboard serve "
                          "--listen {}",
                          address.text, why, address.text));
}

sockaddr_un local_address(const Address& address) {
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  std::memcpy(local.sun_path, address.path.c_str(), address.path.size() + 1);
  return local;
}

using Found = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Found look_up(const Address& address, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
      error != 0) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("address '{}': {}", address.text, ::gai_strerror(error)));
  }
  return {found, ::freeaddrinfo};
}

int connect_once(int socket, const sockaddr* to, socklen_t bytes) {
  return ::connect(socket, to, bytes) == 0 ? 0 : errno;
}

// Of a connection that is on its way.
int outcome_in_time(int socket, Clock::time_point end) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd look{socket, POLLOUT, 0};
    const int ready = ::poll(&look, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (ready == 1) {
      int error = 0;
      socklen_t size = sizeof error;
      ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
      return error;
    }
    if (ready == 0 || errno != EINTR) {
      return ETIMEDOUT;
    }
  }
}

// 0, or errno.
int connect_in_time(int socket, const sockaddr* to, socklen_t bytes) {
  const auto end = Clock::now() + kConnectLimit;
  const int flags = ::fcntl(socket, F_GETFL);
  ::fcntl(socket, F_SETFL, flags | O_NONBLOCK);
  int error = connect_once(socket, to, bytes);
  // The listener of a Unix socket has many to accept, and says so at once.
  while (error == EAGAIN && Clock::now() < end) {
    std::this_thread::sleep_for(kPause);
    error = connect_once(socket, to, bytes);
  }
  if (error == EINPROGRESS) {
    error = outcome_in_time(socket, end);
  }
  ::fcntl(socket, F_SETFL, flags);
  return error;
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24) == 127;
  }
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr) != 0;
}

template <class Greeting>
uint32_t checksum(Greeting greeting) {
  greeting.crc = 0;
  return spec::crc32c(std::as_bytes(std::span(&greeting, 1)));
}

// Of the folder: workers that begin at the same time look for another one's socket, remove it and
// make their own, one after the other. A lock that somebody else keeps is not waited for.
base::Descriptor lock_folder(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  base::Descriptor lock(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC));
  for (int tries = 0; lock.valid() && tries < kLockTries; ++tries) {
    if (::flock(lock.number(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
      break;
    }
    std::this_thread::sleep_for(kPause);
  }
  return lock;
}

// A socket that nobody listens at is removed; a listener that is too busy to accept is one.
void make_way(const Address& address) {
  struct stat status {};
  if (::lstat(address.path.c_str(), &status) != 0) {
    return;
  }
  if (!S_ISSOCK(status.st_mode)) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{}: the file there is not a socket", address.path));
  }
  const base::Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_un local = local_address(address);
  const int error =
      connect_once(probe.number(), reinterpret_cast<const sockaddr*>(&local), sizeof local);
  if (error == 0 || error == EAGAIN) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{}: another worker listens there", address.text));
  }
  if (error == ECONNREFUSED) {
    ::unlink(address.path.c_str());
  } else if (error != ENOENT) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        fmt::format("{}: there is a socket, and whether another worker listens there cannot "
                    "be found out: {}",
                    address.text, std::strerror(error)));
  }
}

base::Descriptor listen_locally(const Address& address) {
  const base::Descriptor lock = lock_folder(address.path);
  make_way(address);
  base::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un local = local_address(address);
  const mode_t mask = ::umask(0177);
  const int bound =
      ::bind(socket.number(), reinterpret_cast<const sockaddr*>(&local), sizeof local);
  const int error = errno;
  ::umask(mask);
  if (bound != 0 || ::listen(socket.number(), kBacklog) != 0) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{}: {}", address.path, std::strerror(bound != 0 ? error : errno)));
  }
  return socket;
}

}  // namespace

std::string tcp_address(const std::string& host, const std::string& port) {
  const bool colons = host.find(':') != std::string::npos;
  return fmt::format("tcp:{}{}{}:{}", colons ? "[" : "", host, colons ? "]" : "", port);
}

Address read_address(const std::string& text) {
  Address address;
  address.text = text;
  if (text.starts_with("unix:")) {
    address.path = text.substr(5);
    if (address.path.empty()) {
      refuse_address(text, "it has no path");
    }
    if (address.path.size() >= sizeof(sockaddr_un::sun_path)) {
      refuse_address(text, fmt::format("the path has {} bytes, sockets {} at most",
                                       address.path.size(), sizeof(sockaddr_un::sun_path) - 1));
    }
    return address;
  }
  const size_t colon = text.rfind(':');
  if (!text.starts_with("tcp:") || colon < 4) {
    refuse_address(text, "unknown kind");
  }
  address.host = text.substr(4, colon - 4);
  address.port = text.substr(colon + 1);
  if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  if (address.host.empty() || address.port.empty() || address.port.size() > 5 ||
      address.port.find_first_not_of("0123456789") != std::string::npos ||
      std::stoi(address.port) > 65535) {
    refuse_address(text, "no host, or no port from 0 to 65535");
  }
  return address;
}

base::Descriptor connect_to(const Address& address) {
  if (address.is_local()) {
    base::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un local = local_address(address);
    if (const int error = connect_in_time(socket.number(),
                                          reinterpret_cast<const sockaddr*>(&local), sizeof local);
        error != 0) {
      nobody(address, std::strerror(error));
    }
    return socket;
  }
  int error = 0;
  const Found found = look_up(address, 0);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    base::Descriptor socket(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    error =
        socket.valid() ? connect_in_time(socket.number(), each->ai_addr, each->ai_addrlen) : errno;
    if (error == 0) {
      return socket;
    }
  }
  nobody(address, std::strerror(error));
}

bool leaves_host(int socket) {
  sockaddr_storage other{};
  socklen_t size = sizeof other;
  return ::getpeername(socket, reinterpret_cast<sockaddr*>(&other), &size) != 0 ||
         !is_loopback(reinterpret_cast<const sockaddr&>(other));
}

bool is_at_loopback(int socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
         is_loopback(reinterpret_cast<const sockaddr&>(own));
}

Preamble make_preamble(bool tls, uint64_t session) {
  Preamble made{};
  std::memcpy(made.magic, Preamble::kMagic, sizeof made.magic);
  made.version = kProtocolVersion;
  made.tls = tls ? 1 : 0;
  made.session = session;
  made.crc = checksum(made);
  return made;
}

PreambleAnswer make_answer(bool tls) {
  PreambleAnswer made{};
  std::memcpy(made.magic, PreambleAnswer::kMagic, sizeof made.magic);
  made.version = kProtocolVersion;
  made.tls = tls ? 1 : 0;
  made.crc = checksum(made);
  return made;
}

bool is_intact(const Preamble& preamble) {
  return std::memcmp(preamble.magic, Preamble::kMagic, sizeof preamble.magic) == 0 &&
         preamble.crc == checksum(preamble);
}

bool is_intact(const PreambleAnswer& answer) { return answer.crc == checksum(answer); }

base::Descriptor listen_at(Address& address, bool far) {
  if (address.is_local()) {
    return listen_locally(address);
  }
  const Found found = look_up(address, AI_PASSIVE);
  if (!far && !is_loopback(*found->ai_addr)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("address '{}': other hosts can connect there only with TLS; give "
                            "--tls-cert and --tls-key, or listen at tcp:127.0.0.1:{}",
                            address.text, address.port));
  }
  base::Descriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ::setsockopt(socket.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(socket.number(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(socket.number(), kBacklog) != 0) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{}: {}", address.text, std::strerror(errno)));
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(socket.number(), reinterpret_cast<sockaddr*>(&bound), &size);
  const uint16_t port = bound.ss_family == AF_INET6
                            ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                            : reinterpret_cast<const sockaddr_in&>(bound).sin_port;
  address.port = std::to_string(ntohs(port));
  address.text = tcp_address(address.host, address.port);
  return socket;
}

}  // namespace tpu::driver::worker
