// Commands that GDB passes on as they are typed, `monitor COMMAND`: texts about the board, and
// registers with and without side effects. `monitor help` lists them.
#pragma once

#include <string>
#include <string_view>

#include "debug/debug_target.hpp"

namespace tpu::model {

// What GDB is to print, lines. Commands that are wrong get a text that says why.
std::string monitor_answer(DebugTarget& target, std::string_view command);

}  // namespace tpu::model
