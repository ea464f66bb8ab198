#include "socket/descriptor.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>

#include "tpu/error.hpp"

namespace tpu::base {
namespace {

union ControlBytes {
  cmsghdr header;  // for its alignment
  char bytes[CMSG_SPACE(kMostDescriptors * sizeof(int))];
};

void take_descriptors(msghdr& message, std::vector<Descriptor>& descriptors) {
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(each) + i * sizeof number, sizeof number);
      descriptors.emplace_back(number);
    }
  }
}

ptrdiff_t receive(int socket, std::span<std::byte> bytes, int flags, size_t most,
                  std::vector<Descriptor>& descriptors) {
  iovec part{bytes.data(), bytes.size()};
  ControlBytes control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = CMSG_LEN(most * sizeof(int));  // the space behind would take one more
  ptrdiff_t got = 0;
  do {
    got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
  } while (got < 0 && errno == EINTR);
  if (got > 0) {
    take_descriptors(message, descriptors);
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
      throw driver::Error(
          driver::ErrorCode::kResourceExhausted,
          fmt::format("a descriptor was lost: expected {} with a frame at most, and room for {} in "
                      "this process (ulimit -n)",
                      most, most == 1 ? "it" : "them"));
    }
  }
  return got;
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) {
    ::close(number_);
  }
}

Peer peer_of(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return {0, static_cast<unsigned>(-1)};
  }
  return {credentials.pid, credentials.uid};
}

ptrdiff_t receive_some(int socket, std::span<std::byte> bytes, Descriptor* descriptor, bool waits) {
  std::vector<Descriptor> came;
  const ptrdiff_t got = receive(socket, bytes, waits ? 0 : MSG_DONTWAIT, 1, came);
  if (!came.empty() && descriptor != nullptr) {
    *descriptor = std::move(came.front());
  }
  return got;
}

ptrdiff_t receive_now(int socket, std::span<std::byte> bytes,
                      std::vector<Descriptor>& descriptors) {
  return receive(socket, bytes, MSG_DONTWAIT, kMostDescriptors, descriptors);
}

ptrdiff_t send_some(int socket, std::span<const std::byte> bytes, int descriptor) {
  return send_some(socket, bytes,
                   descriptor >= 0 ? std::span(&descriptor, 1) : std::span<const int>());
}

ptrdiff_t send_some(int socket, std::span<const std::byte> bytes,
                    std::span<const int> descriptors) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  ControlBytes control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  ptrdiff_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

bool wait_until(int socket, short events, std::chrono::steady_clock::time_point end) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now())
            .count();
    pollfd look{socket, events, 0};
    const int ready = ::poll(&look, 1, static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX)));
    if (ready > 0) {
      return true;
    }
    if (ready == 0 && left <= INT_MAX) {
      return false;
    }
  }
}

}  // namespace tpu::base
