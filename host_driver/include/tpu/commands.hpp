// What the engines of a board do, command by command, from the debug port: for debuggers.
#pragma once

#include <optional>

#include "tpu/board.hpp"
#include "tpu/command_log.hpp"

namespace tpu::driver {

/// Once everything that was submitted is over, which this waits for, every command of the engines
/// is kept until it is taken, and with `look` bytes of a memory as they are when one of the
/// commands is done. No cycle changes. Throws InvalidArgument for a memory that is none,
/// Unimplemented (a transport that knows nothing of commands).
void log_commands(const Board& board, const std::optional<spec::MemoryLook>& look = std::nullopt);

/// What was kept since then, once everything is over; nothing is kept any more.
spec::CommandLog take_commands(const Board& board);

}  // namespace tpu::driver
