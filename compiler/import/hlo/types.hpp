// Element types of HLO as those of VHLO, and their names and sizes. Private to the import.
#pragma once

#include <cstdint>
#include <string>

#include "import/hlo/hlo_module.hpp"
#include "import/raw_builder.hpp"

namespace tpu::compiler::hlo {

// Tensor, token or another type that the import refuses where it is used; not of tuples.
uint32_t vhlo_type_of(const Shape& leaf, bytecode::RawBuilder& build);

// Bytes of an element as literals have it; 0: not known. Types of less than 8 bits take one.
int64_t literal_bytes(int64_t primitive);

bool is_floating(int64_t primitive);  // complex ones too
bool is_unsigned(int64_t primitive);  // truths too

std::string type_name(int64_t primitive);  // "f32"

}  // namespace tpu::compiler::hlo
