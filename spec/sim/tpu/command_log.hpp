// What the engines of a board do, command by command, as the simulated board's debug port keeps it
// for a debugger. Public: installed as tpu/command_log.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tpu::spec {

enum class CoreMemory : uint8_t { kVmem, kSmem, kHbm };

/// Bytes [low, low + bytes) of a memory of a core.
struct MemoryRange {
  uint32_t core = 0;
  CoreMemory memory = CoreMemory::kVmem;
  uint64_t low = 0;
  uint64_t bytes = 0;
  bool operator==(const MemoryRange&) const = default;
};

/// The smallest range around an operand: strides may leave bytes of it out.
struct OperandRange {
  MemoryRange range{};
  bool write = false;
};

/// A command that an engine has started.
struct LoggedCommand {
  uint32_t core = 0;
  uint32_t unit = 0;  ///< spec::Queue
  uint64_t number =
      0;            ///< from 1, in the order in which its core has issued them since the log began
  uint32_t pc = 0;  ///< word
  uint32_t op_id = 0;  ///< index into the executable's ops; larger: unknown
  uint8_t opcode = 0;
  uint64_t start = 0;  ///< cycle of the board
  uint64_t done = 0;   ///< 0: it is not over
  std::vector<OperandRange> operands{};
};

/// Bytes that are wanted as they are when a command is done.
struct MemoryLook {
  uint32_t core = 0;    ///< whose command
  uint64_t number = 0;  ///< LoggedCommand::number
  MemoryRange range{};
};

struct CommandLog {
  std::vector<LoggedCommand> commands;           ///< in the order of their starts
  std::optional<std::vector<std::byte>> looked;  ///< none: the command of the look was not done
};

}  // namespace tpu::spec
