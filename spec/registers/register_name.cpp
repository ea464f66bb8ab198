// Names to addresses and back, over the generated tables.
#include "registers/register_name.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

namespace tpu::spec {
namespace {

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::toupper(x) == std::toupper(y); });
}

// Of a block that has none of this name, or of all blocks where there is no such block.
std::string choice(std::string_view block) {
  std::string names;
  const auto add = [&](std::string_view name) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  };
  for (const RegisterInfo& info : kHartRegisters) {
    if (same_word(info.block, block)) {
      add(info.name);
    }
  }
  if (!names.empty()) {
    return fmt::format("block {} has {}", block, names);
  }
  std::string_view last;
  for (const RegisterInfo& info : kHartRegisters) {
    if (info.block != last) {
      add(info.block);
    }
    last = info.block;
  }
  return fmt::format("write BLOCK.NAME or an address; the blocks are {}", names);
}

uint32_t named_address(std::string_view text) {
  const size_t dot = std::min(text.find('.'), text.size());
  const std::string_view block = text.substr(0, dot);
  std::string_view name = text.substr(std::min(dot + 1, text.size()));
  std::optional<uint32_t> index = 0;
  if (const size_t bracket = name.find('['); bracket != std::string_view::npos) {
    const std::string_view inside = name.substr(bracket + 1);
    index = inside.ends_with(']') ? number_of(inside.substr(0, inside.size() - 1)) : std::nullopt;
    name = name.substr(0, bracket);
  }
  for (const RegisterInfo& info : kHartRegisters) {
    if (!same_word(info.block, block) || !same_word(info.name, name)) {
      continue;
    }
    if (!index || *index >= info.count) {
      throw RegisterNameError(fmt::format("'{}': invalid index: expected {}.{}[0] to [{}]", text,
                                          info.block, info.name, info.count - 1));
    }
    return info.address + *index * info.stride;
  }
  throw RegisterNameError(fmt::format("unknown register '{}': {}", text, choice(block)));
}

}  // namespace

std::optional<uint32_t> number_of(std::string_view text) {
  const bool hex = text.starts_with("0x");
  text.remove_prefix(hex ? 2 : 0);
  uint32_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
  const bool good = error == std::errc() && end == text.data() + text.size();
  return good ? std::optional(value) : std::nullopt;
}

std::string register_name(std::span<const RegisterInfo> registers, uint32_t address) {
  for (const RegisterInfo& info : registers) {
    const uint32_t from_first = address - info.address;
    if (from_first % info.stride == 0 && from_first / info.stride < info.count) {
      return info.count == 1
                 ? fmt::format("{}.{}", info.block, info.name)
                 : fmt::format("{}.{}[{}]", info.block, info.name, from_first / info.stride);
    }
  }
  return fmt::format("{:#010x}", address);
}

uint32_t hart_address(std::string_view text) {
  const bool number = !text.empty() && std::isdigit(static_cast<unsigned char>(text.front())) != 0;
  if (!number) {
    return named_address(text);
  }
  const std::optional<uint32_t> address = number_of(text);
  if (!address) {
    throw RegisterNameError(fmt::format(
        "invalid address '{}': expected 32 bits; write 1073758208 or 0x40004000", text));
  }
  if (*address % sizeof(uint32_t) != 0) {
    throw RegisterNameError(fmt::format("address {:#x} is not a multiple of 4", *address));
  }
  return *address;
}

}  // namespace tpu::spec
