// Printing and parsing of single values.
#include "asm/text.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include "check/near_names.hpp"
#include "exe/code_text.hpp"

namespace tpu::compiler::text {

using spec::FieldInfo;
using spec::FieldType;

namespace {

[[noreturn]] void fail(const std::string& what) { throw Error(what); }

void parse_scalar(FieldType t, std::string_view s, std::byte* p) {
  if (t == FieldType::kAddr) {
    const spec::Addr a = parse_address(s);
    std::memcpy(p, &a, sizeof a);
    return;
  }
  const size_t bytes = exe::scalar_bytes(t);
  const int64_t v = parse_number(s);
  if (bytes < 8) {
    const int64_t top = int64_t{1} << (8 * bytes);
    const bool fits = exe::is_signed(t) ? v >= -top / 2 && v < top / 2 : v >= 0 && v < top;
    if (!fits) {
      fail("value " + std::string(s) + " does not fit into " + std::to_string(bytes) + " bytes");
    }
  }
  std::memcpy(p, &v, bytes);
}

// Cuts "a:b:c".
std::vector<std::string_view> parts(std::string_view s, char at) {
  std::vector<std::string_view> out;
  for (;;) {
    const size_t i = s.find(at);
    out.push_back(s.substr(0, i));
    if (i == std::string_view::npos) {
      return out;
    }
    s.remove_prefix(i + 1);
  }
}

int64_t in_range(std::string_view s, int64_t limit, std::string_view what) {
  return parse_range(s, 0, limit - 1, what);
}

}  // namespace

std::string quote(std::string_view s) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : s) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (u < 0x20 || u >= 0x7f) {
      out += "\\x";
      out += kHex[u >> 4];
      out += kHex[u & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string parse_string(std::string_view s) {
  if (s.size() < 2 || s.front() != '"' || s.back() != '"') {
    fail("expected a string in quotes, found " + std::string(s));
  }
  std::string out;
  for (size_t i = 1; i + 1 < s.size(); ++i) {
    if (s[i] != '\\') {
      out += s[i];
      continue;
    }
    if (i + 2 >= s.size()) {
      fail("a backslash ends the string");
    }
    if (s[i + 1] == 'x' && i + 3 < s.size()) {
      out += static_cast<char>(parse_number("0x" + std::string(s.substr(i + 2, 2))));
      i += 3;
    } else {
      out += s[++i];
    }
  }
  return out;
}

spec::Addr parse_address(std::string_view s) {
  spec::Addr a{};
  size_t i = s.find_first_of("[+-");
  if (i == std::string_view::npos) {
    fail("expected an address such as hbm[0]+64, hbm[0+r4]+64 or vmem+0+r5, found " +
         std::string(s));
  }
  a.space = static_cast<uint8_t>(parse_name(s.substr(0, i), spec::kSpaceNames, "memory"));
  if (s[i] == '[') {
    const size_t end = s.find(']', i);
    if (end == std::string_view::npos) {
      fail("missing ] in address " + std::string(s));
    }
    std::string_view slot = s.substr(i + 1, end - i - 1);
    if (const size_t plus = slot.find('+'); plus != std::string_view::npos) {
      a.slot_reg = static_cast<uint8_t>(parse_register(slot.substr(plus + 1)));
      slot = slot.substr(0, plus);
    }
    a.slot = static_cast<uint16_t>(in_range(slot, 65536, "slot"));
    i = end + 1;
  }
  std::string_view rest = s.substr(i);
  const size_t reg = rest.find("+r");
  if (reg != std::string_view::npos) {
    a.reg = static_cast<uint8_t>(parse_register(rest.substr(reg + 1)));
    rest = rest.substr(0, reg);
  }
  if (!rest.empty() && rest.front() == '+') {
    rest.remove_prefix(1);
  }
  a.offset = rest.empty() ? 0 : parse_number(rest);
  return a;
}

void parse_field(const FieldInfo& f, std::string_view value, std::byte* base) {
  std::byte* p = base + f.offset;
  if (f.count == 1) {
    parse_scalar(f.type, value, p);
    return;
  }
  if (value.size() < 2 || value.front() != '[' || value.back() != ']') {
    fail("field " + std::string(f.name) + " takes a list of " + std::to_string(f.count));
  }
  const auto list = parts(value.substr(1, value.size() - 2), ',');
  if (list.size() != static_cast<size_t>(f.count)) {
    fail("field " + std::string(f.name) + " takes " + std::to_string(f.count) + " values, found " +
         std::to_string(list.size()));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    parse_scalar(f.type, list[i], p + exe::scalar_bytes(f.type) * i);
  }
}

uint8_t parse_flags(std::string_view s, std::span<const std::string_view> names) {
  unsigned flags = 0;
  for (const std::string_view part : parts(s, '+')) {
    const auto it = std::find(names.begin(), names.end(), part);
    if (it != names.end()) {
      flags |= 1u << (it - names.begin());
    } else if (!part.empty() && part.front() >= '0' && part.front() <= '9') {
      flags |= static_cast<unsigned>(parse_range(part, 0, UINT8_MAX, "flags"));
    } else {
      fail("this command has no flag '" + std::string(part) + "'" +
           suggestion(part, {names.begin(), names.end()}));
    }
  }
  return static_cast<uint8_t>(flags);
}

spec::Wait parse_wait(std::string_view s) {
  const auto p = parts(s, ':');
  if (p.size() < 2 || p.size() > 3 || (p.size() == 3 && p[2] != "take")) {
    fail("a wait is SEMAPHORE:VALUE or SEMAPHORE:VALUE:take, found " + std::string(s));
  }
  return {static_cast<uint8_t>(in_range(p[0], 256, "semaphore")),
          static_cast<uint8_t>(spec::Wait::kValid | (p.size() == 3 ? spec::Wait::kTake : 0)),
          static_cast<uint16_t>(in_range(p[1], 65536, "value"))};
}

spec::Signal parse_signal(std::string_view s) {
  const auto p = parts(s, ':');
  if (p.size() < 2 || p.size() > 3) {
    fail("a signal is SEMAPHORE:VALUE, with :rN for another core, found " + std::string(s));
  }
  return {static_cast<uint8_t>(in_range(p[0], 256, "semaphore")),
          static_cast<uint8_t>(spec::Signal::kValid | (p.size() == 3 ? spec::Signal::kRemote : 0)),
          static_cast<uint8_t>(in_range(p[1], 256, "value")),
          static_cast<uint8_t>(p.size() == 3 ? parse_register(p[2]) : 0)};
}

int64_t parse_number(std::string_view s) {
  const bool negative = !s.empty() && s.front() == '-';
  std::string_view digits = negative ? s.substr(1) : s;
  const bool hex = digits.starts_with("0x");
  if (hex) {
    digits.remove_prefix(2);
  }
  uint64_t v = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), v, hex ? 16 : 10);
  if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size()) {
    fail("expected a number, found '" + std::string(s) + "'");
  }
  return static_cast<int64_t>(negative ? ~v + 1 : v);
}

int64_t parse_range(std::string_view s, int64_t low, int64_t high, std::string_view what) {
  const int64_t v = parse_number(s);
  if (v < low || v > high) {
    fail(std::string(what) + " " + std::string(s) + " is not in " + std::to_string(low) + ".." +
         std::to_string(high));
  }
  return v;
}

uint32_t parse_bits(std::string_view s, std::string_view what) {
  float value = 0;
  const std::string_view digits =
      s.ends_with('f') && s.find('.') != std::string_view::npos ? s.substr(0, s.size() - 1) : s;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.find_first_of(".en") != std::string_view::npos && error == std::errc{} &&
      end == digits.data() + digits.size()) {
    constexpr int kHex = 16;
    std::array<char, 2 * sizeof value> bits{};
    const char* const bits_end =
        std::to_chars(bits.begin(), bits.end(), std::bit_cast<uint32_t>(value), kHex).ptr;
    fail(std::string(what) + " " + std::string(s) + ": floats are written by their bits: 0x" +
         std::string(bits.data(), static_cast<size_t>(bits_end - bits.data())));
  }
  return static_cast<uint32_t>(parse_range(s, INT32_MIN, UINT32_MAX, what));
}

int parse_register(std::string_view s, int count) {
  if (s.empty() || s.front() != 'r') {
    fail("expected a register such as r5, found '" + std::string(s) + "'");
  }
  return static_cast<int>(in_range(s.substr(1), count, "register"));
}

std::vector<int64_t> parse_list(std::string_view s) {
  if (s.size() < 2 || s.front() != '[' || s.back() != ']') {
    fail("expected a list such as [1,2], found " + std::string(s));
  }
  std::vector<int64_t> out;
  if (s.size() > 2) {
    for (const std::string_view p : parts(s.substr(1, s.size() - 2), ',')) {
      out.push_back(parse_number(p));
    }
  }
  return out;
}

int parse_name(std::string_view s, const std::string_view* names, size_t count,
               std::string_view what) {
  for (size_t i = 0; i < count; ++i) {
    if (names[i] == s) {
      return static_cast<int>(i);
    }
  }
  fail("unknown " + std::string(what) + " '" + std::string(s) + "'" +
       suggestion(s, {names, names + count}));
}

std::string suggestion(std::string_view s, const std::vector<std::string_view>& names) {
  constexpr size_t kFew = 12;
  std::string typed;  // fma_f and others of a name without its type
  for (const std::string_view name : names) {
    if (name.starts_with(std::string(s) + "_")) {
      typed += (typed.empty() ? "'" : " or '") + std::string(name) + "'";
    }
  }
  if (!typed.empty()) {
    return "; did you mean " + typed + "?";
  }
  if (const std::string meant = spec::closest_name(s, names); !meant.empty()) {
    return "; did you mean '" + meant + "'?";
  }
  if (names.size() > kFew) {
    return "; docs/assembler.md says where all are listed";
  }
  std::string all;
  for (const std::string_view name : names) {
    all += (all.empty() ? "; known: " : ", ") + std::string(name);
  }
  return all;
}

Statement::Statement(std::string_view line, size_t number) : number_(number) {
  bool in_word = false;
  bool quoted = false;
  int depth = 0;
  const auto put = [&](char c, size_t at) {
    if (!in_word) {
      words_.emplace_back();
      columns_.push_back(at + 1);
      in_word = true;
    }
    words_.back() += c;
  };
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted) {
      put(c, i);
      if (c == '\\' && i + 1 < line.size()) {
        ++i;
        put(line[i], i);
      } else if (c == '"') {
        quoted = false;
      }
      continue;
    }
    if (c == ';' || c == '#') {
      break;
    }
    const bool space = c == ' ' || c == '\t' || c == '\r';
    if (space || (c == ',' && depth == 0)) {
      in_word = in_word && depth > 0;
      continue;
    }
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    put(c, i);
    quoted = c == '"';
    if (depth < 0) {
      throw PlacedError("a ] without [", {number, i + 1});
    }
  }
  if (quoted || depth > 0) {
    throw PlacedError(quoted ? "missing quote at the end of a string" : "missing ] of a list",
                      {number, columns_.back()});
  }
}

}  // namespace tpu::compiler::text
