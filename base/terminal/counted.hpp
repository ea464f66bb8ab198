// A number with the noun that it counts, in messages: "1 core", "8 cores".
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace tpu::spec {

/// The plural of the noun is formed with an s.
std::string counted(std::integral auto count, std::string_view noun) {
  std::string text = std::to_string(count);
  text += ' ';
  text += noun;
  return count == 1 ? text : text + 's';
}

}  // namespace tpu::spec
