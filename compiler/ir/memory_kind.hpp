// Memory kinds: where a framework keeps an array, as JAX names them. In a program a placement is a
// custom call with the name of the kind as its configuration, until the pass `host_memory`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tpu::compiler {

// In the order of exe::MemoryKind.
enum class MemoryKind : uint8_t { kDevice, kPinnedHost, kUnpinnedHost };

std::string_view memory_kind_name(MemoryKind kind);
std::optional<MemoryKind> memory_kind_of(std::string_view name);
// The text of an error for a name that is no kind.
std::string unknown_memory_kind(std::string_view name);

// Target of the custom call: its result is the operand, in the memory of the kind.
inline constexpr std::string_view kPlacementTarget = "annotate_device_placement";

}  // namespace tpu::compiler
