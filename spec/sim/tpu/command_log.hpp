// What the engines of a board do, command by command, as the simulated board's debug port keeps it
// for a debugger. Public: installed as tpu/command_log.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tpu::spec {

/// Memories of a core.
enum class CoreMemory : uint8_t { kVmem, kSmem, kHbm };

/// Bytes [low, low + bytes) of a memory of a core.
struct MemoryRange {
  uint32_t core = 0;                      ///< of the board
  CoreMemory memory = CoreMemory::kVmem;  ///< which of its memories
  uint64_t low = 0;                       ///< first byte
  uint64_t bytes = 0;                     ///< their number
  /// Same bytes.
  bool operator==(const MemoryRange&) const = default;
};

/// The smallest range around an operand: strides may leave bytes of it out.
struct OperandRange {
  MemoryRange range{};  ///< bytes
  bool write = false;   ///< it is written, otherwise read
};

/// A command that an engine has started.
struct LoggedCommand {
  uint32_t core = 0;  ///< of the board
  uint32_t unit = 0;  ///< spec::Queue
  /// From 1, in the order in which its core has issued them since the log began.
  uint64_t number = 0;
  uint32_t pc = 0;                       ///< word
  uint32_t op_id = 0;                    ///< index into the executable's ops; larger: unknown
  uint8_t opcode = 0;                    ///< spec::Opcode
  uint64_t start = 0;                    ///< cycle of the board
  uint64_t done = 0;                     ///< 0: it is not over
  std::vector<OperandRange> operands{};  ///< in the order of its fields
};

/// Bytes that are wanted as they are when a command is done.
struct MemoryLook {
  uint32_t core = 0;    ///< whose command
  uint64_t number = 0;  ///< LoggedCommand::number
  MemoryRange range{};  ///< which bytes
};

/// What Board::take_commands() gives.
struct CommandLog {
  std::vector<LoggedCommand> commands;           ///< in the order of their starts
  std::optional<std::vector<std::byte>> looked;  ///< none: the command of the look was not done
};

}  // namespace tpu::spec
