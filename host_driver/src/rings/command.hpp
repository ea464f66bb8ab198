// Command: one entry of a command ring, and what it holds until it is over.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "src/memory/device_memory.hpp"
#include "tpu/spec/rings.h"

namespace tpu::driver {

struct Operation;

struct Command {
  /// Payload by opcode; head and CRC are filled in when it is appended to a ring.
  std::array<std::byte, TPU_CMD_ENTRY_BYTES> wire{};
  int device = 0;
  uint16_t opcode = 0;
  uint16_t flags = TPU_CMD_FLAG_INTERRUPT;
  uint8_t track = 0;
  uint32_t seq = 0;
  int attempts = 0;
  int losses = 0;  ///< times that its core died with it
  std::vector<std::shared_ptr<Allocation>> reads;
  std::vector<std::shared_ptr<Allocation>> writes;
  std::vector<std::shared_ptr<void>> keep;  ///< staging memory
  std::shared_ptr<Operation> op;            ///< the cycle is cut when the operation is finished
  size_t index = 0;                         ///< in the operation
  std::function<void()> on_ok;              ///< under the board lock, when completed OK
};

/// Not yet reported.
constexpr uint16_t kStatusOpen = 0xFFFF;
/// The core was reset before it reported.
constexpr uint16_t kStatusLost = 0xFFFE;

/// Writes `payload` (a struct of rings.h) as the command's entry.
template <typename Payload>
void set_payload(Command& command, uint16_t opcode, uint8_t track, const Payload& payload) {
  static_assert(sizeof(Payload) == TPU_CMD_ENTRY_BYTES);
  const auto bytes = std::as_bytes(std::span<const Payload, 1>(&payload, 1));
  std::copy(bytes.begin(), bytes.end(), command.wire.begin());
  command.opcode = opcode;
  command.track = track;
}

}  // namespace tpu::driver
