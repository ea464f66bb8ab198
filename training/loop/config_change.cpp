// A change is parsed as a file of its own, so that its nodes know where they come from.
#include "loop/config_change.hpp"

#include <fmt/format.h>

#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "check/refuse.hpp"
#include "loop/config_section.hpp"

namespace tpu::training {

using driver::refuse;

namespace {

// The line `key = value`, where that is TOML.
std::optional<toml::table> parsed(std::string_view key, std::string_view value,
                                  const std::string& source) {
  try {
    return toml::parse(fmt::format("{} = {}", key, value), source);
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

std::string quoted(const std::string& text) {
  toml::value<std::string> value(text);
  std::ostringstream out;
  out << toml::toml_formatter(value, toml::format_flags::none);
  return out.str();
}

// Each path of `change` ends in one value, which takes the place of what stands there.
void merge(toml::table& into, toml::table& change, const std::string& source) {
  for (auto&& [key, node] : change) {
    toml::table* inner = node.as_table();
    toml::node* there = into.get(key.str());
    if (inner == nullptr || inner->is_inline()) {
      into.insert_or_assign(key, std::move(node));
    } else if (there == nullptr) {
      into.insert(key, std::move(*inner));
    } else if (toml::table* section = there->as_table()) {
      merge(*section, *inner, source);
    } else {
      refuse(fmt::format("{}: '{}' is not a section; its parts cannot be changed one by one",
                         source, key.str()));
    }
  }
}

}  // namespace

void change_config(toml::table& root, const std::vector<std::string>& changes) {
  for (const std::string& change : changes) {
    const std::string source = "--with " + change;
    const size_t equals = change.find('=');
    const std::string key = change.substr(0, equals);
    if (equals == std::string::npos || key.find('.') == std::string::npos ||
        key.find_first_of("#\n[") != std::string::npos) {
      refuse(fmt::format("{}: expected SECTION.KEY=VALUE, for example run.batch=64", source));
    }
    const std::string value = change.substr(equals + 1);
    std::optional<toml::table> table = parsed(key, value, source);
    if (!table) {
      table = parsed(key, quoted(value), source);
    }
    if (!table) {
      refuse(fmt::format("{}: expected SECTION.KEY=VALUE, for example run.batch=64", source));
    }
    merge(root, *table, source);
  }
}

}  // namespace tpu::training
