// What is no character becomes its number.
#include "terminal/printable_text.hpp"

#include <fmt/format.h>

namespace tpu::spec {

std::string printable_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out.push_back(c);
    } else if (c == '\t') {
      out.push_back(' ');
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return out;
}

}  // namespace tpu::spec
