// Device side of a PCIe endpoint: what a core's hostdma block asks of it. Posted writes and MSIs of
// one endpoint reach the host in the order in which they were posted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <systemc>
#include <vector>

#include "kernel/fluid_share.hpp"

namespace tpu::model {

// Offsets that a core's host_tsock answers: its BAR0 page from 0, its load window from kLoadWindow.
inline constexpr uint64_t kCoreLoadWindow = 0x100000;

// How a read of host memory has ended; but for kDone nothing has come.
enum class DmaRead : uint8_t {
  kDone,
  kNoMemory,  // the range is no host memory
  kPoisoned,  // the data were damaged on the way, and marked so
  kNoAnswer,  // in time
};

class HostBus : public virtual sc_core::sc_interface {
 public:
  static constexpr int kNoMsi = -1;

  // Reads host memory; waits request, bytes and response. `local` are the resources on the way in
  // the chip. `sink` is called once with the bytes when all have arrived.
  virtual DmaRead read_host(uint64_t iova, uint64_t bytes, std::span<const ResourceId> local,
                            const std::function<void(std::span<const std::byte>)>& sink) = 0;

  // Writes host memory; waits until the last byte has left the chip. `source` fills the bytes,
  // unless they are not `wanted` any more then.
  virtual bool write_host(uint64_t iova, uint64_t bytes, std::span<const ResourceId> local,
                          const std::function<bool()>& wanted,
                          const std::function<void(std::span<std::byte>)>& source) = 0;

  // Posted write of few bytes, followed by an MSI unless vector is kNoMsi. Takes no time here. A
  // write that hits no host memory is counted and dropped.
  virtual void post_host(uint64_t iova, std::vector<std::byte> data, int vector) = 0;

  // MSI behind everything that was posted before.
  virtual void post_msi(int vector) = 0;
};

}  // namespace tpu::model
