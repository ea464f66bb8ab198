// Frames of vfio-user over a connected Unix socket, for both ends.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "socket/descriptor.hpp"
#include "transport/vfio/protocol.hpp"

namespace tpu::driver::vfio {

/// The connection cannot be used any more; the text says why.
class ConnectionEnded : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// By the other end, between two frames.
class ConnectionClosed : public ConnectionEnded {
 public:
  using ConnectionEnded::ConnectionEnded;
};

struct Frame {
  Head head;
  std::vector<std::byte> payload;
  std::vector<base::Descriptor> descriptors;

  bool is_reply() const { return (head.flags & Head::kTypeMask) == Head::kReply; }
};

/// "REGION_READ"; "command 99" for one that is not known.
std::string command_name(uint16_t command);

/// A structure at the beginning of the bytes, which are at least as many.
template <class Struct>
Struct read_struct(std::span<const std::byte> bytes) {
  Struct value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}
template <class Struct>
std::span<const std::byte> bytes_of(const Struct& value) {
  return std::as_bytes(std::span(&value, 1));
}

class FrameSocket {
 public:
  static constexpr std::chrono::milliseconds kSendLimit{10'000};

  /// `send_limit`: how long send() waits while the other end takes nothing.
  explicit FrameSocket(base::Descriptor socket, std::chrono::milliseconds send_limit = kSendLimit)
      : socket_(std::move(socket)), send_limit_(send_limit) {}

  /// The next frame, or nothing when not all of it has come. Throws ConnectionEnded.
  std::optional<Frame> receive_now();
  /// The next frame, or nothing when the time is over. Throws ConnectionEnded.
  std::optional<Frame> receive(std::chrono::milliseconds limit);
  /// Throws ConnectionEnded.
  void send(Head head, std::span<const std::byte> payload, std::span<const std::byte> rest = {},
            std::span<const int> descriptors = {});

  int number() const { return socket_.number(); }

 private:
  bool fill(std::span<std::byte> all, size_t from);

  base::Descriptor socket_;
  std::chrono::milliseconds send_limit_;
  Frame frame_;     // that comes
  size_t got_ = 0;  // bytes of it
  std::vector<std::byte> out_;
};

}  // namespace tpu::driver::vfio
