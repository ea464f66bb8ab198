#include "transport/worker/address.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "tpu/error.hpp"

namespace tpu::driver::worker {
namespace {

constexpr int kConnectMilliseconds = 10'000;
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

// 0, or errno.
int connect_in_time(int socket, const sockaddr* to, socklen_t bytes) {
  const int flags = ::fcntl(socket, F_GETFL);
  ::fcntl(socket, F_SETFL, flags | O_NONBLOCK);
  int error = ::connect(socket, to, bytes) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd look{socket, POLLOUT, 0};
    socklen_t size = sizeof error;
    if (::poll(&look, 1, kConnectMilliseconds) == 1) {
      ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
    } else {
      error = ETIMEDOUT;
    }
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

base::Descriptor listen_locally(const Address& address) {
  struct stat status {};
  if (::lstat(address.path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) {
      throw Error(ErrorCode::kFailedPrecondition,
                  fmt::format("{}: the file there is not a socket", address.path));
    }
    base::Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un local = local_address(address);
    if (connect_in_time(probe.number(), reinterpret_cast<const sockaddr*>(&local), sizeof local) ==
        0) {
      throw Error(ErrorCode::kFailedPrecondition,
                  fmt::format("{}: another worker listens there", address.text));
    }
    ::unlink(address.path.c_str());
  }
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
  address.text = fmt::format("tcp:{}:{}",
                             found->ai_family == AF_INET6 ? "[" + address.host + "]" : address.host,
                             address.port);
  return socket;
}

}  // namespace tpu::driver::worker
