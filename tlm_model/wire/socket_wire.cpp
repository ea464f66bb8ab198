// Sends and receives without blocking; sleeps in poll().
#include "wire/socket_wire.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace tpu::model {
namespace {

class SocketWire final : public Wire {
 public:
  SocketWire(uint32_t rank, std::vector<base::Descriptor> sockets)
      : rank_(rank), sockets_(std::move(sockets)), starved_(sockets_.size()) {}

  uint32_t rank() const override { return rank_; }
  uint32_t ranks() const override { return static_cast<uint32_t>(sockets_.size()); }

  size_t send(uint32_t to, std::span<const std::byte> bytes) override {
    const ssize_t sent =
        ::send(sockets_[to].number(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      lose(to, std::strerror(errno));
    }
    const size_t count = sent < 0 ? 0 : static_cast<size_t>(sent);
    starved_[to] = count < bytes.size();
    return count;
  }

  size_t receive(uint32_t from, std::span<std::byte> bytes) override {
    const ssize_t got = ::recv(sockets_[from].number(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got == 0) {
      lose(from, "the connection has ended");
    }
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
      lose(from, std::strerror(errno));
    }
    return got < 0 ? 0 : static_cast<size_t>(got);
  }

  void wait(std::chrono::milliseconds limit, RankSet from) override {
    std::vector<pollfd> all;
    for (size_t rank = 0; rank < sockets_.size(); ++rank) {
      if (sockets_[rank].valid()) {
        const bool awaited = (from & rank_bit(static_cast<uint32_t>(rank))) != 0;
        all.push_back({sockets_[rank].number(),
                       static_cast<short>((awaited ? POLLIN : 0) | (starved_[rank] ? POLLOUT : 0)),
                       0});
      }
    }
    ::poll(all.data(), all.size(), static_cast<int>(limit.count()));
  }

  // What the others have sent may be unread, so that closing would take back what is under way.
  void end() override {
    for (const base::Descriptor& socket : sockets_) {
      if (socket.valid()) {
        ::shutdown(socket.number(), SHUT_WR);
      }
    }
  }

  void set_pid(uint32_t rank, int pid) override {
    pids_.resize(sockets_.size());
    pids_[rank] = pid;
  }

 private:
  [[noreturn]] void lose(uint32_t rank, const std::string& why) const {
    const std::string pid =
        rank < pids_.size() ? "process " + std::to_string(pids_[rank]) + " " : std::string();
    throw PodLost(pid + "(rank " + std::to_string(rank) + " of " + std::to_string(ranks()) +
                  "): " + why);
  }

  const uint32_t rank_;
  const std::vector<base::Descriptor> sockets_;
  std::vector<bool> starved_;
  std::vector<int> pids_;
};

}  // namespace

std::unique_ptr<Wire> make_socket_wire(uint32_t rank, std::vector<base::Descriptor> sockets) {
  return std::make_unique<SocketWire>(rank, std::move(sockets));
}

}  // namespace tpu::model
