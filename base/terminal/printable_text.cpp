// What is no character becomes its number.
#include "terminal/printable_text.hpp"

namespace tpu::spec {
namespace {

constexpr unsigned char kFirstOfTwo = 0xc2;  // UTF-8 of U+0080 to U+00BF begins so

bool is_control(unsigned char byte, unsigned char before) {
  return byte < 0x20 || byte == 0x7f || (before == kFirstOfTwo && byte >= 0x80 && byte < 0xa0);
}

std::string printable(std::string_view text, bool keep_lines) {
  std::string out;
  out.reserve(text.size());
  unsigned char before = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (!is_control(byte, before) || (keep_lines && c == '\n')) {
      out.push_back(c);
    } else if (c == '\t') {
      out.push_back(' ');
    } else {
      if (byte >= 0x80) {
        out.pop_back();
      }
      out += fmt::format("\\x{:02x}", byte);
    }
    before = byte;
  }
  return out;
}

}  // namespace

std::string printable_text(std::string_view text) { return printable(text, false); }

std::string printable_lines(std::string_view text) { return printable(text, true); }

}  // namespace tpu::spec
