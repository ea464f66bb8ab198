// A file descriptor that is closed with its owner, and sockets that carry descriptors.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace tpu::base {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();

  int number() const { return number_; }
  bool valid() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

/// Process at the other end of a Unix socket, and its user.
struct Peer {
  int pid = 0;
  unsigned user = 0;
};
/// No user has the number -1, which says that nothing is known.
Peer peer_of(int socket);

/// Takes what is there of a Unix socket, and waits for the first byte. A descriptor that comes
/// along goes to `descriptor`, or is closed. 0: the other end has closed; negative: errno says why.
/// Without `waits` it does not wait: errno is EAGAIN where nothing has come.
/// Throws driver::Error (ResourceExhausted) for a descriptor that this process cannot take.
ptrdiff_t receive_some(int socket, std::span<std::byte> bytes, Descriptor* descriptor,
                       bool waits = true);

/// Descriptors that come or go with the bytes of one call.
inline constexpr size_t kMostDescriptors = 16;
/// As receive_some(), but waits for nothing (errno EAGAIN), and adds up to kMostDescriptors.
ptrdiff_t receive_now(int socket, std::span<std::byte> bytes, std::vector<Descriptor>& descriptors);

/// Gives what fits into a Unix socket; a descriptor goes with the first byte. Negative: errno says
/// why.
ptrdiff_t send_some(int socket, std::span<const std::byte> bytes, int descriptor);
/// The same with several, kMostDescriptors at most.
ptrdiff_t send_some(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors);

/// Until one of these `events` of poll() is there, or `end`: false.
bool wait_until(int socket, short events, std::chrono::steady_clock::time_point end);

}  // namespace tpu::base
