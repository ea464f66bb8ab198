// One conversion after the other, each by the host's printf.
#include "mgmt/log_format.hpp"

#include <algorithm>
#include <cstdio>

namespace tpu::model {
namespace {

constexpr int kWidest = 256;  // of one conversion

// "%-08.3" and a conversion of the host, which takes `value`.
template <class Value>
std::string convert(const std::string& conversion, Value value) {
  std::string text(kWidest, '\0');
  const int bytes = std::snprintf(text.data(), text.size(), conversion.c_str(), value);
  text.resize(static_cast<size_t>(std::clamp(bytes, 0, kWidest - 1)));
  return text;
}

std::string convert_word(const std::string& flags, char kind, uint32_t word,
                         const std::function<std::string(uint32_t address)>& text_at) {
  switch (kind) {
    case 'd':
    case 'i':
      return convert(flags + "d", static_cast<int32_t>(word));
    case 'u':
    case 'x':
    case 'X':
    case 'o':
      return convert(flags + kind, word);
    case 'c':
      return convert(flags + "c", static_cast<int>(word & 0xff));
    case 'p':
      return convert("%#010x", word);
    case 's':
      return convert(flags + "s", text_at(word).c_str());
    default:
      return "%!";
  }
}

// Flags, width and precision as they stand; digits only, at most three in a row.
bool plain(std::string_view flags) {
  size_t digits = 0;
  for (const char c : flags) {
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    if (digits > 3) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::string format_log(std::string_view format, std::span<const uint32_t> args,
                       const std::function<std::string(uint32_t address)>& text_at) {
  std::string line;
  size_t used = 0;
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      line.push_back(format[at]);
      continue;
    }
    const size_t flags_end =
        std::min(format.find_first_not_of("-+ #0123456789.", at + 1), format.size());
    const std::string flags(format.substr(at, flags_end - at));
    at = std::min(format.find_first_not_of("hlzt", flags_end), format.size());
    const char kind = at < format.size() ? format[at] : '\0';
    if (kind == '%') {
      line.push_back('%');
    } else if (used < args.size() && plain(flags)) {
      line += convert_word(flags, kind, args[used++], text_at);
    } else {
      line += "%!";
    }
  }
  return line;
}

}  // namespace tpu::model
