#include "transport/vfio/interrupt_vectors.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "transport/vfio/requests.hpp"

namespace tpu::driver::vfio {
namespace {

uint32_t irq_count(uint32_t index) {
  return index == kMsiIrq ? spec::chip_page::kMsiVectors : index == kErrorIrq ? 1 : 0;
}

// A client could pass a pipe that is full, which the server would wait for.
bool is_eventfd(int descriptor) {
  char text[64] = {};
  const std::string link = fmt::format("/proc/self/fd/{}", descriptor);
  const ssize_t length = ::readlink(link.c_str(), text, sizeof text - 1);
  return length > 0 && std::string(text) == "anon_inode:[eventfd]";
}

void signal(const base::Descriptor& event) {
  if (!event.valid()) {
    return;
  }
  pollfd one{event.number(), POLLOUT, 0};
  const uint64_t count = 1;
  if (::poll(&one, 1, 0) == 1 && (one.revents & POLLOUT) != 0) {
    [[maybe_unused]] const ssize_t written = ::write(event.number(), &count, sizeof count);
  }  // else its count is at its end: the client has all that it can have
}

}  // namespace

std::vector<std::byte> InterruptVectors::info(Bytes payload) {
  auto info = sized<IrqInfo>(payload);
  if (info.index >= kIrqs) {
    throw Rejected(EINVAL, fmt::format("interrupt {}: expected 0 to {}", info.index, kIrqs - 1));
  }
  info.argsz = sizeof info;
  info.count = irq_count(info.index);
  info.flags = info.count == 0 ? 0 : IrqInfo::kEventfd;
  return vector_of(info);
}

void InterruptVectors::set(Frame& frame) {
  const Bytes payload = frame.payload;
  const auto request = beginning<SetIrqs>(payload);
  const Bytes wanted = payload.subspan(sizeof request);
  const uint32_t data = request.flags & ~SetIrqs::kTrigger;
  if (request.index >= kIrqs || request.start > irq_count(request.index) ||
      request.count > irq_count(request.index) - request.start) {
    throw Rejected(EINVAL,
                   fmt::format("vectors {} to {} of interrupt {}, which has {}", request.start,
                               uint64_t{request.start} + request.count, request.index,
                               request.index < kIrqs ? irq_count(request.index) : 0));
  }
  if ((request.flags & SetIrqs::kTrigger) == 0 ||
      (data != SetIrqs::kNone && data != SetIrqs::kBool && data != SetIrqs::kEventfd)) {
    throw Rejected(EINVAL, fmt::format("flags {:#x}: expected one kind of data, and TRIGGER: "
                                       "vectors have no mask",
                                       request.flags));
  }
  const size_t bytes = data == SetIrqs::kBool ? request.count : 0;
  const size_t most = data == SetIrqs::kEventfd ? request.count : 0;
  if (wanted.size() != bytes || (frame.descriptors.size() != most && !frame.descriptors.empty())) {
    throw Rejected(EINVAL, fmt::format("{} bytes and {} descriptors: expected {} and {}",
                                       wanted.size(), frame.descriptors.size(), bytes, most));
  }
  if (!std::ranges::all_of(frame.descriptors, is_eventfd, &base::Descriptor::number)) {
    throw Rejected(EINVAL, "a descriptor is not an eventfd");
  }
  trigger(request, wanted, frame.descriptors);
}

void InterruptVectors::trigger(const SetIrqs& request, Bytes wanted,
                               std::span<base::Descriptor> events) {
  const std::span<base::Descriptor> all =
      request.index == kErrorIrq ? std::span(&error_, 1) : std::span<base::Descriptor>(msi_);
  if ((request.flags & SetIrqs::kNone) != 0 && request.count == 0) {
    if (irq_count(request.index) != 0) {
      std::ranges::for_each(all, [](base::Descriptor& each) { each = base::Descriptor(); });
    }
    return;
  }
  for (uint32_t i = 0; i < request.count; ++i) {
    base::Descriptor& vector = all[request.start + i];
    if ((request.flags & SetIrqs::kEventfd) != 0) {
      vector = events.empty() ? base::Descriptor() : std::move(events[i]);
    } else if (wanted.empty() || wanted[i] != std::byte{0}) {
      signal(vector);
    }
  }
}

void InterruptVectors::raise(uint32_t vectors) {
  for (size_t i = 0; i < msi_.size(); ++i) {
    if ((vectors >> i & 1) != 0) {
      signal(msi_.at(i));
    }
  }
}

void InterruptVectors::raise_error() { signal(error_); }

void InterruptVectors::clear() {
  msi_ = {};
  error_ = {};
}

}  // namespace tpu::driver::vfio
