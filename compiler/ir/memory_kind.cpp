#include "ir/memory_kind.hpp"

#include <algorithm>
#include <array>

namespace tpu::compiler {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"device", "pinned_host", "unpinned_host"};

}  // namespace

std::string_view memory_kind_name(MemoryKind kind) { return kNames.at(static_cast<size_t>(kind)); }

std::optional<MemoryKind> memory_kind_of(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  return found == kNames.end() ? std::nullopt
                               : std::optional(static_cast<MemoryKind>(found - kNames.begin()));
}

std::string unknown_memory_kind(std::string_view name) {
  return "there is no memory of the kind '" + std::string(name) +
         "'; use memory_kind='device', 'pinned_host' or 'unpinned_host'";
}

}  // namespace tpu::compiler
