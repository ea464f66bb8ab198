// A serialized HloModuleProto to plain structs. The reader guarantees that ids name what comes
// before them: operands within a computation, called computations within the module, so that
// nothing calls itself. Private to the import.
#pragma once

#include <cstddef>
#include <span>

#include "import/hlo/hlo_module.hpp"

namespace tpu::compiler::hlo {

// True of bytes that begin as an HloModuleProto, or as an HloProto, HloModuleProtoWithConfig or
// other message whose first field is one.
bool is_hlo_module(std::span<const std::byte> bytes);

// Texts are views into `bytes`. Throws compiler::Error for anything that is damaged.
HloModule read_hlo_module(std::span<const std::byte> bytes);

}  // namespace tpu::compiler::hlo
