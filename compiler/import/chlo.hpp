// What operations of the dialect CHLO are in operations of StableHLO: the functions of chlo.mlirbc,
// which export_chlo.py writes.
#pragma once

#include <cstddef>
#include <span>

namespace tpu::compiler::frontend {

// The bytes of chlo.mlirbc.
std::span<const std::byte> chlo_artifact();

}  // namespace tpu::compiler::frontend
