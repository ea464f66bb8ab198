// Scalar registers of a core program, and SMEM.
#pragma once

#include <array>

namespace tpu::compiler {

inline constexpr int kPartitionRegister = 1;    // replica id of the core
inline constexpr int kFirstPeerRegister = 2;    // .. 8: replica id xor mask, as needed
inline constexpr int kFirstOffsetRegister = 9;  // addresses that differ between cores
inline constexpr int kAddressRegister = 26;     // of a dynamic slice
inline constexpr int kScalarRegister = 27;      // .. 30: integer expressions
inline constexpr int kLimitRegister = 31;
// Addresses that move with a loop, until another use of the register.
inline constexpr std::array kMovingRegisters = {kAddressRegister, kScalarRegister + 1,
                                                kScalarRegister + 2, kScalarRegister + 3};

}  // namespace tpu::compiler
