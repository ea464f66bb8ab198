#include "transport/worker/byte_stream.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "transport/worker/frame.hpp"
#include "transport/worker/tcp_options.hpp"

namespace tpu::driver::worker {
namespace {

// An end that reads nothing for so long is taken for gone.
constexpr int kPatienceSeconds = 30;
// So much comes in parts, of which the other end makes the next one: it needs the processor.
constexpr size_t kLongRead = size_t{128} << 10;

template <class Value>
void set(int socket, int level, int option, Value value) {
  ::setsockopt(socket, level, option, &value, sizeof value);  // what cannot be set stays as it is
}

}  // namespace

bool Stream::takes_more() const {
  pollfd one{socket(), POLLOUT, 0};
  return ::poll(&one, 1, 0) == 1 && (one.revents & POLLOUT) != 0;
}

SocketStream::SocketStream(base::Descriptor socket, bool local)
    : socket_(std::move(socket)), parent_only_(socket_.number()), local_(local) {
  set(socket_.number(), SOL_SOCKET, SO_SNDTIMEO, timeval{kPatienceSeconds, 0});
  if (local_) {
    return;
  }
  set_tcp_options(socket_.number());
  set(socket_.number(), IPPROTO_TCP, TCP_USER_TIMEOUT, kPatienceSeconds * 1000);
}

// One limit for each read would let an end that sends a byte now and then stay for ever.
void SocketStream::wait_in_time() const {
  using std::chrono::milliseconds;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(*end_ - std::chrono::steady_clock::now());
    pollfd one{socket_.number(), POLLIN, 0};
    const auto wait = std::clamp<int64_t>(left.count(), 0, std::numeric_limits<int>::max());
    const int ready = ::poll(&one, 1, static_cast<int>(wait));
    if (ready > 0) {
      return;
    }
    if (ready == 0 && left.count() <= std::numeric_limits<int>::max()) {
      throw ConnectionLost("nothing came in time");
    }
  }
}

size_t SocketStream::read(std::span<std::byte> bytes, base::Descriptor* descriptor) {
  ptrdiff_t got = 0;
  bool is_there = false;
  if (end_) {
    wait_in_time();
  } else if (bytes.size() < kLongRead) {
    constexpr int kLooks = 4;  // each of which is a call of the system
    const auto look = [&] {
      got = base::receive_some(socket_.number(), bytes, descriptor, false);
      return is_there = got >= 0 || errno != EAGAIN;
    };
    patience_.look_for(look, kLooks);
  }
  if (!is_there) {
    got = base::receive_some(socket_.number(), bytes, descriptor);
  }
  if (got < 0) {
    throw ConnectionLost(std::strerror(errno));
  }
  patience_.came();
  if (got == 0) {
    throw ConnectionLost("the other end has closed the connection");
  }
  return static_cast<size_t>(got);
}

void SocketStream::write(std::span<const std::byte> bytes, int descriptor) {
  while (!bytes.empty()) {
    const ptrdiff_t sent = base::send_some(socket_.number(), bytes, descriptor);
    if (sent < 0) {
      throw ConnectionLost(
          errno == EAGAIN
              ? fmt::format("the other end has read nothing for {} seconds", kPatienceSeconds)
              : std::string(std::strerror(errno)));
    }
    descriptor = -1;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
}

void SocketStream::shut_down() { ::shutdown(socket_.number(), SHUT_RDWR); }

void SocketStream::limit_reads(std::chrono::milliseconds limit) {
  end_ = std::nullopt;
  if (limit.count() != 0) {
    end_ = std::chrono::steady_clock::now() + limit;
  }
}

}  // namespace tpu::driver::worker
