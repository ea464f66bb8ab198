#include "transport/worker/channel.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tpu/error.hpp"

namespace tpu::driver::worker {
namespace {

constexpr size_t kMostDescriptors = 4;  // on their way
constexpr uint64_t kBytesToAcknowledge = uint64_t{4} << 20;
// A connection on which nothing arrives that could be used is given up after so many others.
constexpr size_t kMostSpares = 16;
constexpr int kMostAttempts = 16;

}  // namespace

void FrameReader::fill(size_t at_least) {
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (buffer_.size() - begin_ < at_least) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  while (end_ - begin_ < at_least) {
    base::Descriptor descriptor;
    end_ += stream_.read(std::span(buffer_).subspan(end_), &descriptor);
    if (descriptor.valid()) {
      if (descriptors_.size() == kMostDescriptors) {
        throw ConnectionLost("more descriptors came than frames say");
      }
      descriptors_.push_back(std::move(descriptor));
    }
  }
}

void FrameReader::take(std::span<std::byte> bytes) {
  const size_t here = std::min(bytes.size(), end_ - begin_);
  std::copy_n(buffer_.begin() + static_cast<ptrdiff_t>(begin_), here, bytes.begin());
  begin_ += here;
  bytes = bytes.subspan(here);
  while (!bytes.empty()) {  // large ones pass the buffer
    bytes = bytes.subspan(stream_.read(bytes, nullptr));
  }
}

Frame FrameReader::next(size_t most_bytes, std::span<std::byte> place,
                        std::vector<std::byte> reuse) {
  fill(kHeadBytes);
  std::array<std::byte, kHeadBytes> head_bytes{};
  take(head_bytes);
  Frame frame;
  const FrameHead head = read_head(head_bytes, most_bytes, frame);
  std::span<std::byte> to = place;
  if (frame.kind == Kind::kDmaData && head.bytes <= place.size()) {
    frame.placed = head.bytes;
    to = place.first(head.bytes);
  } else {
    frame.payload = std::move(reuse);
    frame.payload.resize(head.bytes);
    to = frame.payload;
  }
  if (head.bytes <= buffer_.size() && head.bytes != 0) {
    fill(head.bytes);
  }
  take(to);
  check_frame(head, head_bytes, to);
  if (frame.has_descriptor) {
    if (descriptors_.empty()) {
      throw ConnectionLost(fmt::format("frame {} came without its descriptor", frame.number));
    }
    frame.descriptor = std::move(descriptors_.front());
    descriptors_.pop_front();
  }
  return frame;
}

Channel::Channel(NextConnection first, Recover recover)
    : recover_(std::move(recover)),
      local_(first.stream->is_local()),
      stream_(std::move(first.stream)),
      reader_(std::move(first.reader)) {}

void Channel::post_frame(Kind kind, bool more, std::span<const std::byte> bytes,
                         std::span<const std::byte> rest, int descriptor, bool lent) {
  Frame frame;
  frame.kind = kind;
  frame.more = more;
  frame.has_descriptor = descriptor >= 0;
  frame.number = ++last_number_;
  frame.acknowledged = received_;
  if (lent) {
    sent_.push_back({frame.number, write_head(frame, bytes), descriptor, bytes});
    return;
  }
  std::vector<std::byte> reuse;
  if (bytes.size() + rest.size() > kPieceBytes / 2 && !spare_.empty()) {
    reuse = std::move(spare_.back());
    spare_.pop_back();
  }
  sent_.push_back(
      {frame.number, write_frame(frame, bytes, rest, std::move(reuse)), descriptor, {}});
}

void Channel::drop_first() {
  if (sent_.front().bytes.size() > kPieceBytes / 2 && spare_.size() < kMostSpares) {
    spare_.push_back(std::move(sent_.front().bytes));
  }
  sent_.pop_front();
}

void Channel::post_joined(Kind kind, std::span<const std::byte> head,
                          std::span<const std::byte> rest) {
  const base::MutexLock lock(mutex_);
  post_frame(kind, false, head, rest, -1, false);
  if (rest.size() >= kPieceBytes) {
    write_rest();
  }
}

void Channel::post(Kind kind, std::span<const std::byte> bytes, int descriptor) {
  post_message(kind, bytes, descriptor, false);
}

void Channel::post_lent(Kind kind, std::span<const std::byte> bytes) {
  post_message(kind, bytes, -1, bytes.size() >= kPieceBytes / 16);
}

void Channel::keep_lent() {
  const base::MutexLock lock(mutex_);
  for (Sent& each : sent_) {
    each.bytes.insert(each.bytes.end(), each.lent.begin(), each.lent.end());
    each.lent = {};
  }
}

void Channel::post_message(Kind kind, std::span<const std::byte> bytes, int descriptor, bool lent) {
  const base::MutexLock lock(mutex_);
  do {
    const size_t piece = std::min(bytes.size(), kPieceBytes);
    post_frame(kind, piece < bytes.size(), bytes.first(piece), {}, descriptor, lent);
    descriptor = -1;
    bytes = bytes.subspan(piece);
    if (piece == kPieceBytes) {
      write_rest();  // the other end has the first pieces while the next are made
    }
  } while (!bytes.empty());
}

// Small frames that wait go together.
void Channel::write_rest() {
  if (!broken_.empty()) {
    return;
  }
  try {
    while (written_ < sent_.size()) {
      size_t end = written_ + 1;
      const Sent& first = sent_[written_];
      if (end == sent_.size() || !first.lent.empty() || first.bytes.size() > kPieceBytes / 16) {
        stream_->write(first.bytes, first.descriptor);
        stream_->write(first.lent, -1);
      } else {
        std::vector<std::byte> joined = first.bytes;
        for (; end < sent_.size() && sent_[end].descriptor < 0 && sent_[end].lent.empty() &&
               joined.size() + sent_[end].bytes.size() <= kPieceBytes / 8;
             ++end) {
          joined.insert(joined.end(), sent_[end].bytes.begin(), sent_[end].bytes.end());
        }
        stream_->write(joined, first.descriptor);
      }
      written_ = end;
      told_ = true;
    }
  } catch (const ConnectionLost& lost) {
    broken_ = lost.what();
    stream_->shut_down();  // whoever reads finds it
  }
}

void Channel::flush() {
  const base::MutexLock lock(mutex_);
  write_rest();
}

void Channel::shut_down() {
  std::shared_ptr<Stream> now;
  {
    const base::MutexLock lock(stream_mutex_);
    now = stream_;
  }
  now->shut_down();
}

void Channel::acknowledge(const Frame& frame) {
  const base::MutexLock lock(mutex_);
  while (!sent_.empty() && written_ > 0 && sent_.front().number <= frame.acknowledged) {
    drop_first();
    --written_;
  }
  unacknowledged_bytes_ = told_.exchange(false) ? 0 : unacknowledged_bytes_;
  unacknowledged_bytes_ += frame.payload.size() + frame.placed;
  // The other end may write a long message and read nothing until it is done: both would wait.
  if (unacknowledged_bytes_ >= kBytesToAcknowledge && broken_.empty() && stream_->takes_more()) {
    Frame answer;
    answer.acknowledged = received_;
    try {
      stream_->write(write_frame(answer, {}), -1);
    } catch (const ConnectionLost&) {
      // receive() finds it.
    }
    unacknowledged_bytes_ = 0;
  }
}

// Throws ConnectionLost.
Frame Channel::take_frame(std::span<std::byte> place) {
  for (;;) {
    Frame frame = reader_->next(kMostFrameBytes, place, std::move(spare_payload_));
    if (frame.kind == Kind::kAck && frame.number == 0) {
      acknowledge(frame);
      flush();
      continue;
    }
    const uint64_t expected = received_ + 1;
    if (frame.number != expected) {
      throw ConnectionLost(fmt::format("frame {} came where frame {} was expected{}", frame.number,
                                       expected,
                                       frame.number < expected ? ": it was there before" : ""));
    }
    received_ = expected;
    attempts_ = 0;
    acknowledge(frame);
    return frame;
  }
}

Frame Channel::receive_frame(std::span<std::byte> place) {
  for (;;) {
    try {
      flush();
      return take_frame(place);
    } catch (const ConnectionLost& lost) {
      connect_again(lost.what());
    }
  }
}

std::optional<Frame> Channel::find_end() {
  pollfd one{socket(), POLLRDHUP, 0};
  if (::poll(&one, 1, 0) == 1) {
    try {
      return take_frame({});  // waits for nothing: all that comes is there
    } catch (const ConnectionLost& lost) {
      connect_again(lost.what());
      attempts_ = 0;  // nothing had to arrive in between
    }
  }
  return std::nullopt;
}

void Channel::connect_again(const std::string& why) {
  std::string reason = why;
  {
    const base::MutexLock lock(mutex_);
    if (!broken_.empty()) {
      reason = broken_;
    }
    broken_ = reason;
    stream_->shut_down();
  }
  if (++attempts_ > kMostAttempts) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("the connection broke {} times and nothing arrived in between: {}",
                            kMostAttempts, reason));
  }
  NextConnection next = recover_(reason, received_);
  const base::MutexLock lock(mutex_);
  while (!sent_.empty() && sent_.front().number <= next.received) {
    drop_first();
  }
  if (next.received > last_number_ ||
      (!sent_.empty() && sent_.front().number != next.received + 1)) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("the other end has received frames up to {}, which are not those that "
                            "were sent: {} to {}",
                            next.received, sent_.empty() ? 0 : sent_.front().number, last_number_));
  }
  reader_ = std::move(next.reader);
  {
    const base::MutexLock stream_lock(stream_mutex_);
    stream_ = std::move(next.stream);
  }
  broken_.clear();
  written_ = 0;
}

Message Channel::receive(std::span<std::byte> place) {
  Message message;
  for (bool first = true;; first = false) {
    Frame frame = receive_frame(place);
    place = place.subspan(frame.placed);
    if (first) {
      message = {frame.kind, std::move(frame.payload), frame.placed, std::move(frame.descriptor)};
    } else {
      if (frame.kind != message.kind ||
          message.bytes.size() + frame.payload.size() > kMostMessageBytes) {
        throw Error(ErrorCode::kUnavailable,
                    fmt::format("frame {} does not continue the message that it is a part of",
                                frame.number));
      }
      message.placed += frame.placed;
      message.bytes.insert(message.bytes.end(), frame.payload.begin(), frame.payload.end());
    }
    if (!frame.more) {
      return message;
    }
    if (frame.payload.empty() && frame.placed == 0 && !first) {
      throw Error(ErrorCode::kUnavailable,
                  fmt::format("frame {} of a message is empty", frame.number));
    }
  }
}

}  // namespace tpu::driver::worker
