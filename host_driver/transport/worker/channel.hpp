// Numbered frames over connections that may break. What the other end has not acknowledged is kept
// and sent again over the next connection, from the first frame on that has not arrived: each frame
// arrives once, in order.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sync/mutex.hpp"
#include "transport/worker/byte_stream.hpp"
#include "transport/worker/frame.hpp"

namespace tpu::driver::worker {

/// Frames of one connection, as they come.
class FrameReader {
 public:
  explicit FrameReader(Stream& stream) : stream_(stream) {}
  /// Throws ConnectionLost, and as read_head().
  /// The payload of a kDmaData that fits goes to `place`; `reuse`: room for others.
  Frame next(size_t most_bytes = kMostFrameBytes, std::span<std::byte> place = {},
             std::vector<std::byte> reuse = {});
  /// Bytes have been taken from the connection and not been returned.
  bool has_rest() const { return begin_ != end_ || stream_.has_pending(); }

 private:
  void take(std::span<std::byte> bytes);
  void fill(size_t at_least);

  Stream& stream_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(size_t{64} << 10);
  size_t begin_ = 0, end_ = 0;  // of the bytes in the buffer
  std::deque<base::Descriptor> descriptors_;
};

/// A connection that takes the place of one that broke.
struct NextConnection {
  std::unique_ptr<Stream> stream;
  std::unique_ptr<FrameReader> reader;
  uint64_t received = 0;  ///< number of the last frame that the other end has
};

/// A message: one frame, or several.
struct Message {
  Kind kind = Kind::kAck;
  std::vector<std::byte> bytes;
  size_t placed = 0;  ///< of Channel::receive()
  base::Descriptor descriptor;
};

class Channel {
 public:
  /// Told why the connection broke and the number of the last frame that has arrived here. Throws
  /// Error (Unavailable) when there will be no other one.
  using Recover = std::function<NextConnection(const std::string& why, uint64_t received)>;

  Channel(NextConnection first, Recover recover);

  /// Keeps a message that flush() sends, and receive() again if need be. Any thread. Waits only for
  /// the other end to take the pieces of a long one.
  void post(Kind kind, std::span<const std::byte> bytes, int descriptor = -1);
  /// As post(), of two parts that make one frame.
  void post_joined(Kind kind, std::span<const std::byte> head, std::span<const std::byte> rest);
  /// As post(), of a long message whose bytes are not copied: they stay as they are until
  /// keep_lent().
  void post_lent(Kind kind, std::span<const std::byte> bytes);
  /// Copies what was lent and has not arrived yet.
  void keep_lent();
  /// Any thread. A connection that is broken is found by receive().
  void flush();

  /// Sends what was posted and waits for a message. One thread at a time. Throws what Recover
  /// throws. Bytes of kDmaData go to `place`, if the message has not more, and message.placed says
  /// how many.
  Message receive(std::span<std::byte> place = {});
  /// Room for messages to come.
  void give_back(std::vector<std::byte> bytes) { spare_payload_ = std::move(bytes); }

  /// What has come behind the last message, when the other end has closed the connection and sends
  /// no more; else nothing, at once, or over another connection. Of the thread that receives.
  /// Throws what Recover throws.
  std::optional<Frame> find_end();

  /// Any thread: ends the connection that is there now.
  void shut_down();
  /// A message may have arrived although the socket shows none.
  bool has_rest() const { return reader_->has_rest(); }
  /// For poll(); of the thread that receives.
  int socket() const { return stream_->socket(); }
  bool is_local() const { return local_; }

 private:
  struct Sent {
    uint64_t number;
    std::vector<std::byte> bytes;
    int descriptor;
    std::span<const std::byte> lent;  // behind these bytes
  };
  void post_message(Kind kind, std::span<const std::byte> bytes, int descriptor, bool lent);
  void post_frame(Kind kind, bool more, std::span<const std::byte> bytes,
                  std::span<const std::byte> rest, int descriptor, bool lent) TPU_REQUIRES(mutex_);
  void drop_first() TPU_REQUIRES(mutex_);
  void write_rest() TPU_REQUIRES(mutex_);
  Frame receive_frame(std::span<std::byte> place);
  Frame take_frame(std::span<std::byte> place);
  void acknowledge(const Frame& frame);
  void connect_again(const std::string& why);

  const Recover recover_;
  const bool local_;
  base::Mutex stream_mutex_;        // behind mutex_, which a writer holds for long
  std::shared_ptr<Stream> stream_;  // changed by the thread that receives, under both
  std::unique_ptr<FrameReader> reader_;
  base::Mutex mutex_;
  std::deque<Sent> sent_ TPU_GUARDED_BY(mutex_);  // not acknowledged
  size_t written_ TPU_GUARDED_BY(mutex_) = 0;     // of these
  // Room of large frames that were acknowledged: fresh memory is slow.
  std::vector<std::vector<std::byte>> spare_ TPU_GUARDED_BY(mutex_);
  std::vector<std::byte> spare_payload_;  // of the thread that receives
  uint64_t last_number_ TPU_GUARDED_BY(mutex_) = 0;
  std::string broken_ TPU_GUARDED_BY(mutex_);  // why writing failed; empty: it did not
  std::atomic<uint64_t> received_ = 0;
  uint64_t unacknowledged_bytes_ = 0;  // that have arrived since a frame was sent
  std::atomic<bool> told_ = false;     // a frame was sent since
  int attempts_ = 0;                   // connections since a frame arrived last
};

}  // namespace tpu::driver::worker
