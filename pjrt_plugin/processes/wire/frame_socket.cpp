#include "processes/wire/frame_socket.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "tpu/error.hpp"

namespace tpu::pjrt {
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

bool FrameSocket::receive_bytes(std::span<std::byte> bytes, Descriptor* descriptor) {
  while (!bytes.empty()) {
    iovec part{bytes.data(), bytes.size()};
    ControlBytes control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_LEN(sizeof(int));  // the space behind would take a second one
    const ssize_t got = ::recvmsg(socket_.number(), &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return false;
    }
    Descriptor came = descriptor_of(message);
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
      throw driver::Error(
          driver::ErrorCode::kResourceExhausted,
          "the descriptor of shared memory was lost: expected one with a frame, and "
          "room for it in this process (ulimit -n)");
    }
    if (came.valid() && descriptor != nullptr) {
      *descriptor = std::move(came);
    }
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return true;
}

std::optional<ReceivedFrame> FrameSocket::receive() {
  ReceivedFrame received;
  std::array<std::byte, kFrameHeadBytes> head{};
  if (!receive_bytes(head, &received.descriptor)) {
    return std::nullopt;
  }
  const FrameHead read = read_frame_head(head);
  std::vector<std::byte> payload(read.bytes);
  if (!receive_bytes(payload, nullptr)) {
    return std::nullopt;
  }
  received.frame = read_frame(read, payload);
  received.bytes = payload.size();
  return received;
}

bool FrameSocket::send(std::span<const std::byte> frame, int descriptor) const {
  while (!frame.empty()) {
    iovec part{const_cast<std::byte*>(frame.data()), frame.size()};
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
    const ssize_t sent = ::sendmsg(socket_.number(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) {
      continue;
    }
    if (sent < 0) {
      return false;
    }
    descriptor = -1;
    frame = frame.subspan(static_cast<size_t>(sent));
  }
  return true;
}

void FrameSocket::shut_down() const { ::shutdown(socket_.number(), SHUT_RDWR); }

void FrameSocket::stop_receiving() const { ::shutdown(socket_.number(), SHUT_RD); }

FrameSocket::Peer FrameSocket::peer() const {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket_.number(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return {0, static_cast<unsigned>(-1)};
  }
  return {credentials.pid, credentials.uid};
}

}  // namespace tpu::pjrt
