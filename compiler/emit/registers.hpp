// Scalar registers of a core program, and SMEM.
#pragma once

namespace tpu::compiler {

inline constexpr int kPartitionRegister = 1;    // replica id of the core
inline constexpr int kFirstPeerRegister = 2;    // .. 8: replica id xor mask, as needed
inline constexpr int kFirstOffsetRegister = 9;  // addresses that differ between cores
inline constexpr int kAddressRegister = 26;     // of a dynamic slice
inline constexpr int kScalarRegister = 27;      // .. 30: integer expressions
inline constexpr int kLimitRegister = 31;

}  // namespace tpu::compiler
