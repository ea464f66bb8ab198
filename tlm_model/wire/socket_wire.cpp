// Sends and receives without blocking; sleeps in poll().
#include "wire/socket_wire.hpp"

#include <poll.h>

#include <cstdint>
#include <string>
#include <utility>

namespace tpu::model {
namespace {

class PipeWire final : public Wire {
 public:
  PipeWire(uint32_t rank, std::vector<std::shared_ptr<base::Pipe>> pipes)
      : rank_(rank), pipes_(std::move(pipes)), starved_(pipes_.size()) {}

  uint32_t rank() const override { return rank_; }
  uint32_t ranks() const override { return static_cast<uint32_t>(pipes_.size()); }

  size_t send(uint32_t to, std::span<const std::byte> bytes) override {
    try {
      const size_t count = pipes_[to]->send(bytes);
      starved_[to] = count < bytes.size();
      return count;
    } catch (const base::PipeBroken& error) {
      lose(to, error.what());
    }
  }

  size_t receive(uint32_t from, std::span<std::byte> bytes) override {
    try {
      return pipes_[from]->receive(bytes);
    } catch (const base::PipeBroken& error) {
      lose(from, error.what());
    }
  }

  void wait(std::chrono::milliseconds limit, RankSet from) override {
    std::vector<pollfd> all;
    for (size_t rank = 0; rank < pipes_.size(); ++rank) {
      if (pipes_[rank] == nullptr) {
        continue;
      }
      const bool awaited = (from & rank_bit(static_cast<uint32_t>(rank))) != 0;
      if (awaited && pipes_[rank]->has_pending()) {
        return;
      }
      all.push_back({pipes_[rank]->socket(),
                     static_cast<short>((awaited ? POLLIN : 0) | (starved_[rank] ? POLLOUT : 0)),
                     0});
    }
    ::poll(all.data(), all.size(), static_cast<int>(limit.count()));
  }

  void end() override {
    for (const auto& pipe : pipes_) {
      if (pipe != nullptr) {
        pipe->end();
      }
    }
  }

  void set_pid(uint32_t rank, int pid) override {
    pids_.resize(pipes_.size());
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
  const std::vector<std::shared_ptr<base::Pipe>> pipes_;
  std::vector<bool> starved_;
  std::vector<int> pids_;
};

}  // namespace

std::unique_ptr<Wire> make_pipe_wire(uint32_t rank,
                                     std::vector<std::shared_ptr<base::Pipe>> pipes) {
  return std::make_unique<PipeWire>(rank, std::move(pipes));
}

std::unique_ptr<Wire> make_socket_wire(uint32_t rank, std::vector<base::Descriptor> sockets) {
  std::vector<std::shared_ptr<base::Pipe>> pipes;
  for (base::Descriptor& socket : sockets) {
    pipes.push_back(socket.valid() ? base::make_socket_pipe(std::move(socket)) : nullptr);
  }
  return make_pipe_wire(rank, std::move(pipes));
}

}  // namespace tpu::model
