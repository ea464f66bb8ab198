#include "socket/descriptor.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tpu/error.hpp"

namespace tpu::base {
namespace {

union ControlBytes {
  cmsghdr header;  // for its alignment
  char bytes[CMSG_SPACE(sizeof(int))];
};

// The descriptor of a message, which has room for one.
Descriptor descriptor_of(msghdr& message) {
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level == SOL_SOCKET && each->cmsg_type == SCM_RIGHTS &&
        each->cmsg_len >= CMSG_LEN(sizeof(int))) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(each), sizeof number);
      return Descriptor(number);
    }
  }
  return {};
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
  iovec part{bytes.data(), bytes.size()};
  ControlBytes control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = CMSG_LEN(sizeof(int));  // the space behind would take a second one
  ptrdiff_t got = 0;
  do {
    got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | (waits ? 0 : MSG_DONTWAIT));
  } while (got < 0 && errno == EINTR);
  if (got <= 0) {
    return got;
  }
  Descriptor came = descriptor_of(message);
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    throw driver::Error(driver::ErrorCode::kResourceExhausted,
                        "the descriptor of shared memory was lost: expected one with a frame, and "
                        "room for it in this process (ulimit -n)");
  }
  if (came.valid() && descriptor != nullptr) {
    *descriptor = std::move(came);
  }
  return got;
}

ptrdiff_t send_some(int socket, std::span<const std::byte> bytes, int descriptor) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  ControlBytes control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  ptrdiff_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

}  // namespace tpu::base
