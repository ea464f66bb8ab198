// Fields in texts to names of options.
#include "sim/option_names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <tuple>
#include <utility>

namespace tpu::spec {
namespace {

constexpr std::array<std::string_view, 2> kOwners = {"SimOptions::", "OpenOptions::"};

std::string field_of(const OptionInfo& option) {
  return std::string(option.owner) + "::" + std::string(option.members[0]);
}

const OptionInfo* option_with(std::string_view owner, std::string_view member) {
  owner.remove_suffix(2);
  const auto* const found = std::ranges::find_if(kBoardOptions, [&](const OptionInfo& option) {
    return option.owner == owner &&
           std::ranges::find(option.members, member) != option.members.end();
  });
  return found != kBoardOptions.end() && !member.empty() ? found : nullptr;
}

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// At the first field that `text` names: where it begins, and the length of its owner.
std::pair<size_t, size_t> find_owner(std::string_view text) {
  std::pair<size_t, size_t> first = {std::string_view::npos, 0};
  for (const std::string_view owner : kOwners) {
    if (const size_t at = text.find(owner); at < first.first) {
      first = {at, owner.size()};
    }
  }
  return first;
}

}  // namespace

const OptionInfo& board_option(std::string_view name) {
  return *std::ranges::find(kBoardOptions, name, &OptionInfo::name);
}

std::string option_name(const OptionInfo& option, OptionDoor door) {
  if (door == OptionDoor::kCommandLine && option.command_line) {
    return "--" + std::string(option.name);
  }
  if (door == OptionDoor::kEnvironment && !option.variable.empty()) {
    return "TPUBOARD_" + std::string(option.variable);
  }
  return field_of(option);
}

std::string name_options(const std::string& text, OptionDoor door) {
  std::string named;
  std::string_view rest = text;
  for (auto [at, length] = find_owner(rest); at != std::string_view::npos;
       std::tie(at, length) = find_owner(rest)) {
    const auto* const end = std::find_if_not(rest.begin() + at + length, rest.end(), is_name);
    const std::string_view member(rest.begin() + at + length, end);
    const OptionInfo* const option = option_with(rest.substr(at, length), member);
    named += rest.substr(0, at);
    named += option != nullptr ? option_name(*option, door)
                               : std::string(rest.substr(at, length + member.size()));
    rest.remove_prefix(at + length + member.size());
  }
  return named + std::string(rest);
}

}  // namespace tpu::spec
