// Host memory of a driver in another process: what it shares is mapped, the rest goes over the
// connection.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "socket/shared_memory.hpp"
#include "tpu/transport.hpp"
#include "transport/worker/channel.hpp"
#include "transport/worker/worker_messages.hpp"

namespace tpu::driver::worker {

class RemoteMemory final : public HostMemory {
 public:
  static constexpr uint64_t kMostMappedBytes = uint64_t{64} << 30;

  /// `before`, `behind`: called around what waits for the driver; the second is told whether the
  /// driver wants the run to end, or cannot be asked.
  RemoteMemory(Channel& channel, std::function<void()> before,
               std::function<void(bool interrupted)> behind)
      : channel_(channel), before_(std::move(before)), behind_(std::move(behind)) {}

  /// Throws Error: InvalidArgument, ResourceExhausted.
  void map(uint64_t iova, uint64_t bytes, base::Descriptor file);

  std::span<std::byte> span(uint64_t iova, uint64_t bytes, bool write) override;
  bool is_there(uint64_t iova, uint64_t bytes, bool write) override;

  /// What the board has written goes to the driver: before it is told of anything.
  void flush();
  /// Why the driver could not be asked; empty: it could. The board sees memory that is not there.
  const std::string& trouble() const { return trouble_; }
  void lose(const std::string& why) { trouble_ = why; }

 private:
  std::span<std::byte> mapped(uint64_t iova, uint64_t bytes);
  Message ask(const Range& range, std::span<std::byte> place);

  Channel& channel_;
  const std::function<void()> before_;
  const std::function<void(bool)> behind_;
  std::map<uint64_t, base::SharedMemory> ranges_;
  uint64_t mapped_bytes_ = 0;
  // Room of ranges: grows, since to fill what has just been allocated takes as long as to copy it.
  using Room = std::vector<std::byte>;
  static std::span<std::byte> first_of(Room& room, uint64_t bytes);
  struct Written {
    uint64_t iova;
    Room room;
    std::span<std::byte> bytes;
  };
  std::deque<Written> written_;  // by the board, and not sent
  std::vector<Room> spare_;
  std::deque<Room> read_;  // the latest: spans of them are in use
  std::string trouble_;
};

}  // namespace tpu::driver::worker
