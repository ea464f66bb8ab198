// Memory of a client as a chip sees it: ranges that are mapped are used in place; what is spread
// over several ranges is copied, and what the client has for itself goes over the connection.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "tpu/transport.hpp"
#include "transport/vfio/dma_ranges.hpp"

namespace tpu::driver::vfio {

class ClientMemory final : public HostMemory {
 public:
  /// Transfers of bytes that the client has; false: it could not be asked, or refused.
  struct Far {
    std::function<bool(uint64_t address, std::span<std::byte> to)> read;
    std::function<bool(uint64_t address, std::span<const std::byte> from)> write;
  };
  /// `permitted`: whether the function may make requests. `aborted`: one reached no memory.
  ClientMemory(Far far, std::function<bool()> permitted, std::function<void()> aborted)
      : far_(std::move(far)), permitted_(std::move(permitted)), aborted_(std::move(aborted)) {}

  // HostMemory: in the thread of the board.
  std::span<std::byte> span(uint64_t iova, uint64_t bytes, bool write) override;
  bool is_there(uint64_t iova, uint64_t bytes, bool write) override;

  /// What the board has written gets to its place: before the client is told of anything.
  void flush();
  DmaRanges& ranges() { return ranges_; }

 private:
  std::span<std::byte> gather(uint64_t iova, uint64_t bytes);
  std::span<std::byte> abort();

  const Far far_;
  const std::function<bool()> permitted_;
  const std::function<void()> aborted_;
  DmaRanges ranges_;
  struct Written {
    uint64_t iova = 0;
    std::vector<std::byte> bytes;
  };
  std::vector<Written> written_;             // by the board, and not in its place
  std::deque<std::vector<std::byte>> read_;  // the latest: spans of them are in use
};

}  // namespace tpu::driver::vfio
