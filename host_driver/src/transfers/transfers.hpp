// Transfers between host and HBM, and within HBM. Arrays of any size go through staging memory in
// pieces; a piece waits for room in staging memory and in its ring, and gives its staging memory
// back when it is over. Guarded by the board lock, which long copies on the host leave to others.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/lock/board_lock.hpp"
#include "src/memory/box.hpp"
#include "src/operations/board_handles.hpp"
#include "src/operations/contents.hpp"
#include "src/operations/send_order.hpp"
#include "src/transfers/board_memory.hpp"
#include "src/turn/turn.hpp"
#include "tpu/buffer.hpp"

namespace tpu::driver {

class Transfers {
 public:
  Transfers(BoardMemory& memory, Operations& operations, SendOrder& order,
            const BoardHandles& handles, Turn& turn)
      : memory_(memory), operations_(operations), order_(order), handles_(handles), turn_(turn) {}

  /// The box of `host` to one buffer on each device; staged once. `alloc_bytes`: room wanted, at
  /// least the data. Waits for room in staging memory and rings.
  std::vector<Buffer> upload(const std::vector<int>& devices, const HostView& host, const Box& box,
                             const Shape& local, uint64_t alloc_bytes, const std::string& label)
      TPU_REQUIRES(board_lock);
  Buffer upload_later(int device, DType dtype, const Shape& shape,
                      const std::shared_ptr<const std::vector<std::byte>>& bytes,
                      const std::vector<Event>& after) TPU_REQUIRES(board_lock);
  /// `alloc_bytes` as for upload().
  Buffer zeros(int device, DType dtype, const Shape& shape, uint64_t alloc_bytes)
      TPU_REQUIRES(board_lock);
  Buffer copy(const BufferState& source, int device, const std::vector<Event>& after)
      TPU_REQUIRES(board_lock);
  /// Byte ranges of buffers, handed to their sinks in pieces, under the board lock. When this
  /// throws, no sink is called any more.
  Event read(const std::vector<ReadPart>& parts, const std::vector<Event>& after)
      TPU_REQUIRES(board_lock);

  /// Sends the same array to all targets; operation i is that of target i.
  void send_up(const std::vector<std::shared_ptr<Operation>>& ops,
               const std::vector<std::shared_ptr<Allocation>>& targets, uint64_t bytes, bool planes,
               const ByteSource& source) TPU_REQUIRES(board_lock);

 private:
  void add_copy(const std::shared_ptr<Operation>& op, const std::shared_ptr<Allocation>& from,
                const std::shared_ptr<Allocation>& to, uint64_t first, uint64_t bytes)
      TPU_REQUIRES(board_lock);
  void add_read(const std::shared_ptr<Operation>& op, const Contents::Stretch& from,
                const std::shared_ptr<const ByteSink>& sink) TPU_REQUIRES(board_lock);
  void add_read_planes(const std::shared_ptr<Operation>& op,
                       const std::shared_ptr<Allocation>& memory, const PlaneRange& range,
                       const std::shared_ptr<const ByteSink>& sink) TPU_REQUIRES(board_lock);

  BoardMemory& memory_;
  Operations& operations_;
  SendOrder& order_;
  const BoardHandles& handles_;
  Turn& turn_;
};

}  // namespace tpu::driver
