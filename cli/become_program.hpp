// This process becomes another program.
#pragma once

#include <string>
#include <vector>

namespace tpu::driver {

/// `words`: the program first, which is looked up on the PATH unless it has a slash. Throws Error
/// (Unavailable) when it cannot be started; `advice` ends the text.
[[noreturn]] void become_program(std::vector<std::string> words, const std::string& advice);

}  // namespace tpu::driver
