// Where the bytes of buffers lie, and what of them a call moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "src/operations/buffer_state.hpp"

namespace tpu::driver {

/// {first, end}
using ByteRanges = std::vector<std::pair<uint64_t, uint64_t>>;
/// Takes the bytes at `at` of a buffer.
using ByteSink = std::function<void(uint64_t at, std::span<const std::byte> piece)>;
/// Makes the bytes at `at` of a buffer.
using ByteSource = std::function<void(uint64_t at, std::span<std::byte> piece)>;

/// The memory that a buffer's contents lie in, held for a call.
struct Contents {
  struct Stretch {
    std::shared_ptr<Allocation> memory;
    uint64_t first, end;  ///< bytes of the buffer, and of the memory
  };
  std::vector<std::shared_ptr<Allocation>> parts;  ///< its own, or that of all owners
  OwnedRuns owned;
  uint64_t element_bytes = 0;

  /// Bytes [first, end), front to back.
  std::vector<Stretch> within(uint64_t first, uint64_t end) const;
};

/// Bytes [first, end) of an array of `bytes` that lies in planes (src/memory/word_planes.hpp).
struct PlaneRange {
  uint64_t first, end, bytes;
};

/// What a read takes of one buffer.
struct ReadPart {
  std::shared_ptr<BufferState> source;
  ByteRanges ranges;
  ByteSink sink;
};

}  // namespace tpu::driver
