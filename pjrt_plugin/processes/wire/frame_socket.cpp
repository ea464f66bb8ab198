#include "processes/wire/frame_socket.hpp"

#include <sys/socket.h>

#include <array>

namespace tpu::pjrt {

bool FrameSocket::receive_bytes(std::span<std::byte> bytes, Descriptor* descriptor) {
  while (!bytes.empty()) {
    const ptrdiff_t got = base::receive_some(socket_.number(), bytes, descriptor);
    if (got <= 0) {
      return false;
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
    const ptrdiff_t sent = base::send_some(socket_.number(), frame, descriptor);
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

}  // namespace tpu::pjrt
