#include "transport/vfio/frame_socket.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <utility>

#include "tpu/error.hpp"

namespace tpu::driver::vfio {
namespace {

constexpr const char* kCommandNames[] = {nullptr,
                                         "VERSION",
                                         "DMA_MAP",
                                         "DMA_UNMAP",
                                         "DEVICE_GET_INFO",
                                         "DEVICE_GET_REGION_INFO",
                                         "DEVICE_GET_REGION_IO_FDS",
                                         "DEVICE_GET_IRQ_INFO",
                                         "DEVICE_SET_IRQS",
                                         "REGION_READ",
                                         "REGION_WRITE",
                                         "DMA_READ",
                                         "DMA_WRITE",
                                         "DEVICE_RESET",
                                         nullptr,
                                         "REGION_WRITE_MULTI"};

std::string system_reason() { return std::strerror(errno); }

}  // namespace

std::string command_name(uint16_t command) {
  const bool known = command < std::size(kCommandNames) && kCommandNames[command] != nullptr;
  return known ? kCommandNames[command] : fmt::format("command {}", command);
}

// From `from` to the end of `all`, whose number in the frame got_ counts. False: not all is there.
bool FrameSocket::fill(std::span<std::byte> all, size_t from) {
  while (got_ - from < all.size()) {
    ptrdiff_t more = 0;
    try {
      more = base::receive_now(socket_.number(), all.subspan(got_ - from), frame_.descriptors);
    } catch (const Error& error) {
      throw ConnectionEnded(error.message());
    }
    if (more == 0) {
      if (got_ == 0) {
        throw ConnectionClosed("the other end has closed it");
      }
      throw ConnectionEnded("the other end has closed it within a frame");
    }
    if (more < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return false;
      }
      throw ConnectionEnded(system_reason());
    }
    got_ += static_cast<size_t>(more);
    if (frame_.descriptors.size() > base::kMostDescriptors) {
      throw ConnectionEnded(
          fmt::format("a frame has more than {} descriptors", base::kMostDescriptors));
    }
  }
  return true;
}

std::optional<Frame> FrameSocket::receive_now() {
  if (got_ < sizeof(Head)) {
    if (!fill(std::as_writable_bytes(std::span(&frame_.head, 1)), 0)) {
      return std::nullopt;
    }
    const Head& head = frame_.head;
    if (head.bytes < sizeof(Head) || head.bytes > kMostFrameBytes) {
      throw ConnectionEnded(fmt::format("a frame ({}) of {} bytes: expected {} to {}",
                                        command_name(head.command), head.bytes, sizeof(Head),
                                        kMostFrameBytes));
    }
    frame_.payload.resize(head.bytes - sizeof(Head));
  }
  if (!fill(frame_.payload, sizeof(Head))) {
    return std::nullopt;
  }
  got_ = 0;
  return std::exchange(frame_, Frame());
}

std::optional<Frame> FrameSocket::receive(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    if (std::optional<Frame> frame = receive_now()) {
      return frame;
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      return std::nullopt;
    }
    pollfd one{socket_.number(), POLLIN, 0};
    ::poll(&one, 1, static_cast<int>(left.count()));
  }
}

void FrameSocket::send(Head head, std::span<const std::byte> payload,
                       std::span<const std::byte> rest, std::span<const int> descriptors) {
  head.bytes = static_cast<uint32_t>(sizeof head + payload.size() + rest.size());
  out_.assign(bytes_of(head).begin(), bytes_of(head).end());
  out_.insert(out_.end(), payload.begin(), payload.end());
  out_.insert(out_.end(), rest.begin(), rest.end());
  auto end = std::chrono::steady_clock::now() + send_limit_;
  for (std::span<const std::byte> left = out_; !left.empty();) {
    const ptrdiff_t sent = base::send_some(socket_.number(), left, descriptors);
    if (sent > 0) {
      left = left.subspan(static_cast<size_t>(sent));
      descriptors = {};
      end = std::chrono::steady_clock::now() + send_limit_;
      continue;
    }
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
      throw ConnectionEnded(system_reason());
    }
    pollfd one{socket_.number(), POLLOUT, 0};
    ::poll(&one, 1, 100);
    if (std::chrono::steady_clock::now() >= end) {
      throw ConnectionEnded(
          fmt::format("the other end has read nothing for {} s", send_limit_.count() / 1000));
    }
  }
}

}  // namespace tpu::driver::vfio
