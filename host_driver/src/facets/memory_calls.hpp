// MemoryCalls: the calls of Board that make, copy and read buffers. They take the board lock
// themselves; uploads wait until the host has made their bytes ready.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/door/door.hpp"
#include "src/health/health.hpp"
#include "src/transfers/transfers.hpp"

namespace tpu::driver {

class MemoryCalls {
 public:
  /// `prepare`: the host makes so many bytes ready for an upload. May give up the lock.
  MemoryCalls(Door& door, Health& health, BoardMemory& memory, Transfers& transfers,
              std::function<void(uint64_t bytes)> prepare)
      : door_(door),
        health_(health),
        memory_(memory),
        transfers_(transfers),
        prepare_(std::move(prepare)) {}

  /// Throws ResourceExhausted when the board's memory is the host's and has no room for that much.
  void need_room(uint64_t bytes, const std::string& what);
  // As the functions of Transfers with these names.
  std::vector<Buffer> upload(const std::vector<int>& devices, const HostView& host, const Box& box,
                             const Shape& local, uint64_t alloc_bytes, const std::string& label);
  Buffer upload_later(int device, DType dtype, const Shape& shape,
                      const std::shared_ptr<const std::vector<std::byte>>& bytes,
                      const std::vector<Event>& after);
  Buffer zeros(int device, DType dtype, const Shape& shape, uint64_t alloc_bytes);
  Buffer copy(const BufferState& source, int device, const std::vector<Event>& after);
  Event read(const std::vector<ReadPart>& parts, const std::vector<Event>& after);

 private:
  Door& door_;
  Health& health_;
  BoardMemory& memory_;
  Transfers& transfers_;
  const std::function<void(uint64_t bytes)> prepare_;
};

}  // namespace tpu::driver
