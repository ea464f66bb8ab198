// A connected Unix socket that carries frames. One thread receives; whoever sends holds a lock of
// its own.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "processes/wire/frame.hpp"
#include "socket/descriptor.hpp"
#include "socket/parent_only.hpp"

namespace tpu::pjrt {

using base::Descriptor;
using base::ParentOnly;

struct ReceivedFrame {
  wire::FrameT frame;
  Descriptor descriptor;  ///< that came along
  size_t bytes = 0;       ///< of the payload
};

class FrameSocket {
 public:
  /// Children made by fork() do not have the connection.
  explicit FrameSocket(Descriptor socket)
      : socket_(std::move(socket)), parent_only_(socket_.number()) {}

  /// Waits for a frame. Nothing: the other end has closed, also in the middle of a frame. Throws
  /// driver::Error as read_frame(), and ResourceExhausted for a descriptor that this process cannot
  /// take.
  std::optional<ReceivedFrame> receive();

  /// The bytes of write_frame(). False: the other end has closed.
  bool send(std::span<const std::byte> frame, int descriptor = -1) const;

  /// Ends receive() and send() on both ends.
  void shut_down() const;
  /// Ends receive() at this end, and send() at the other.
  void stop_receiving() const;

  /// Process at the other end, and its user.
  using Peer = base::Peer;
  Peer peer() const { return base::peer_of(socket_.number()); }

 private:
  bool receive_bytes(std::span<std::byte> bytes, Descriptor* descriptor);

  Descriptor socket_;
  ParentOnly parent_only_;
};

}  // namespace tpu::pjrt
