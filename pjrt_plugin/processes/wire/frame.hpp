// Frames as bytes (spec/formats/process_wire.fbs).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "process_wire_generated.h"

namespace tpu::pjrt {

inline constexpr uint32_t kProtocolVersion = 2;
inline constexpr size_t kFrameHeadBytes = 16;
inline constexpr size_t kMostFrameBytes = size_t{16} << 20;  ///< of a payload
/// Arrays of more bytes go through shared memory.
inline constexpr size_t kMostInFrame = size_t{64} << 10;

struct FrameHead {
  uint32_t bytes = 0;  ///< of the payload
  uint32_t crc = 0;
};

/// Throws driver::Error: FailedPrecondition for another version, Internal for other bytes.
FrameHead read_frame_head(std::span<const std::byte> head);

/// Throws driver::Error (Internal) for a payload that is damaged.
wire::FrameT read_frame(const FrameHead& head, std::span<const std::byte> payload);

/// Head and payload. Throws driver::Error (ResourceExhausted) for a frame that is too long.
std::vector<std::byte> write_frame(const wire::FrameT& frame);

/// A frame with this body. Number 0: nobody answers it.
template <class BodyT>
wire::FrameT frame_of(BodyT body, uint64_t number = 0) {
  wire::FrameT frame;
  frame.number = number;
  frame.body.Set(std::move(body));
  return frame;
}

}  // namespace tpu::pjrt
