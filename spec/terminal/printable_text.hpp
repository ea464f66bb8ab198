// Text of others on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace tpu::spec {

// A terminal must not obey what firmware prints: control characters become "\x1b".
std::string printable_text(std::string_view text);

}  // namespace tpu::spec
