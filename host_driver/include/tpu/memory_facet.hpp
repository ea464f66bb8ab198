// Memory of a board: uploads, copies between cores, arrays over several cores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tpu/board_facet.hpp"
#include "tpu/buffer.hpp"
#include "tpu/event.hpp"
#include "tpu/types.hpp"

namespace tpu::driver {

/// Calls throw InvalidArgument for a device, type, shape or view that is none, and
/// ResourceExhausted when HBM has no room; buffers of other boards are InvalidArgument.
class MemoryFacet : public virtual BoardFacet {
 public:
  /// Uploads; the bytes are copied before the call returns, with strides straight from where they
  /// lie. An array that does not fit into the staging memory goes in pieces, and the call returns
  /// when the last of them has found room.
  Buffer put(int device, const HostView& host) const;
  /// The same of bytes that come later: those of `bytes`, which has the array's size, when all of
  /// `after` are ready; nobody writes them from then on. The buffer fails with what of these fails.
  /// Waits as zeros() does.
  Buffer put(int device, DType dtype, const Shape& shape,
             std::shared_ptr<const std::vector<std::byte>> bytes,
             const std::vector<Event>& after) const;
  /// Fills with zero bits. Waits only for room: in the ring, and in HBM that handles already gone
  /// are about to give back.
  Buffer zeros(int device, DType dtype, const Shape& shape) const;
  /// Copies to new memory of `device`, after the events in `after`: within a core through its DMA,
  /// to another one over the links between the chips, without the host. Waits as
  /// zeros() does. Throws FailedPrecondition when `source` was donated or discarded.
  Buffer copy(const Buffer& source, int device, const std::vector<Event>& after = {}) const;
  /// copy() to the core on which `source` is.
  Buffer clone(const Buffer& source) const;
  /// The same array on the first `count` devices (0: all).
  Array replicate(const HostView& host, int count = 0) const;
  /// Dimension `dim` cut into equal parts over the first `count` devices (0: all).
  Array shard(const HostView& host, int count = 0, size_t dim = 0) const;
};

}  // namespace tpu::driver
