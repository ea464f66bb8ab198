// StableHLO's own bytecode (module.operation.write_bytecode(file)): its ops as the VHLO ops that a
// portable artifact has: one op set for everything behind the reader.
//
//   stablehlo.gather {dimension_numbers = #stablehlo.gather<offset_dims = [1], ..>}
//   =>  vhlo.gather_v1 {offset_dims = dense<[1]>, .., indices_are_sorted = false}
#pragma once

#include "import/bytecode.hpp"

namespace tpu::compiler::bytecode {

// The lists of properties that writers of several versions store for an op of the dialects
// stablehlo, func and chlo, in bytecode order; a name with '?' is stored as index and flag. Empty:
// the op is not known.
std::vector<std::vector<std::string_view>> plain_properties(Dialect dialect, std::string_view name);

// Ops of these dialects, with their attributes, in VHLO's form; others as they are.
void to_vhlo_form(RawModule& module);

}  // namespace tpu::compiler::bytecode
