// Host memory as the board sees it over PCIe. Implemented by the driver's transport or by a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tpu::model {

struct HostMemory {
  virtual ~HostMemory() = default;
  // Bytes at `iova`, empty when the range is not registered: the board sees a master abort. Called
  // on the kernel thread; the span is used before simulated time goes on.
  virtual std::span<std::byte> span(uint64_t iova, uint64_t bytes, bool write) = 0;
  // Whether the range is registered. Memory that is far away is not fetched for it.
  virtual bool is_there(uint64_t iova, uint64_t bytes, bool write) {
    return span(iova, bytes, write).size() >= bytes;
  }
  // What one chip sees, which lives as long as this.
  virtual HostMemory& of_chip(uint32_t chip) {
    static_cast<void>(chip);
    return *this;
  }
};

}  // namespace tpu::model
