// What GDB is told of a control hart's registers: target.xml with the base set and the CSRs by
// name, and their numbers in packets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tpu::model {

// Registers 0 to 31 are x0 to x31.
inline constexpr uint32_t kGdbPc = 32;

std::string target_xml();

// The CSR behind a register number of GDB.
std::optional<uint32_t> gdb_csr(uint32_t number);

}  // namespace tpu::model
