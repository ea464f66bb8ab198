// Frames between a driver and the process that has its board ("worker"): 32 bytes of head, little
// endian, then the payload. Every frame of a session has a number; frames 0 belong to a connection
// alone (greeting, acknowledgements). docs/serve.md describes the protocol.
//
//   0  magic "TPUW"     4  protocol version     6  kind     7  flags
//   8  bytes of the payload                    12  CRC-32C of head (with 0 here) and payload
//  16  number                                  24  number of the last frame that has arrived
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "socket/descriptor.hpp"

namespace tpu::driver::worker {

inline constexpr uint16_t kProtocolVersion = 4;
inline constexpr size_t kHeadBytes = 32;
inline constexpr size_t kMostFrameBytes = size_t{4} << 20;  ///< of a payload
inline constexpr size_t kPieceBytes = size_t{1} << 20;      ///< of what is sent in pieces
inline constexpr uint64_t kMostMessageBytes = uint64_t{1} << 31;
/// Before the other end has shown who it is.
inline constexpr size_t kMostGreetingBytes = size_t{16} << 10;

enum class Kind : uint8_t {
  // Number 0.
  kHello,    ///< driver: who it is, or which session goes on
  kWelcome,  ///< worker: the session
  kQueued,   ///< worker: others have the board; a welcome comes later
  kRefused,  ///< worker: why the connection ends
  kAck,      ///< both: nothing but the number of the last frame
  // Of the driver.
  kAttach,     ///< what its board must be
  kMap,        ///< host memory, with a descriptor
  kListen,     ///< for the other workers of a pod
  kPart,       ///< which boards of a pod it has; memory of the wires may come with a descriptor
  kRead,       ///< of a register
  kWrites,     ///< of registers
  kBlock,      ///< bytes that lie together
  kRun,        ///< lets time pass
  kInterrupt,  ///< ends it early
  kCall,       ///< of the debug port
  kProgram,    ///< an executable that launches are named by
  kName,       ///< a launch
  kPrepares,   ///< the host makes input ready
  kClose,      ///< the board, and the session
  kHandled,    ///< answers kMsi
  kDmaData,    ///< answers kDmaRead
  // Of the worker.
  kAnswer,    ///< to kAttach, kListen, kRead, kRun, kCall, kClose
  kFailure,   ///< in place of an answer
  kMsi,       ///< an interrupt in a run
  kDmaRead,   ///< of host memory that is not mapped
  kDmaWrite,  ///< the same, with the bytes
};
inline constexpr Kind kLastKind = Kind::kDmaWrite;

struct Frame {
  Kind kind = Kind::kAck;
  bool more = false;            ///< the next frame continues the message
  bool has_descriptor = false;  ///< one comes with it
  uint64_t number = 0;
  uint64_t acknowledged = 0;
  std::vector<std::byte> payload;
  size_t placed = 0;  ///< bytes of the payload that went where the reader was told
  base::Descriptor descriptor;
};

/// A connection that cannot be used any more; the text says why.
class ConnectionLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct FrameHead {
  uint32_t bytes = 0;  ///< of the payload
  uint32_t crc = 0;
};

/// Throws ConnectionLost for bytes that are no head.
FrameHead read_head(std::span<const std::byte> head, size_t most_bytes, Frame& frame);
/// Throws ConnectionLost for a checksum that does not match.
void check_frame(const FrameHead& head, std::span<const std::byte> head_bytes,
                 std::span<const std::byte> payload);

/// Head and payload, which can be in two parts; in the room of `reuse`.
std::vector<std::byte> write_frame(const Frame& frame, std::span<const std::byte> payload,
                                   std::span<const std::byte> rest = {},
                                   std::vector<std::byte> reuse = {});
/// The head alone, behind which the payload is sent.
std::vector<std::byte> write_head(const Frame& frame, std::span<const std::byte> payload);

}  // namespace tpu::driver::worker
