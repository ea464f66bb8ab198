// Which bytes a command touches: of every operand its address, its exact pattern, and whether it is
// written. The model's decoder takes bounds and overlap checks from here, the compiler the ranges
// that it orders by semaphores. VPU kernels: vpu_footprint.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "command/stride_pattern.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::spec {

inline bool is_hbm(const Addr& a) { return a.space == static_cast<uint8_t>(Space::kHbm); }

/// Only the first operands of a command may be in HBM.
inline constexpr size_t kHbmOperands = 2;

struct CommandOperand {
  Addr address{};
  StridePattern bytes;  ///< from the address on
  bool write = false;
  bool remote = false;  ///< memory of the core that `peer_reg` names
};

/// In the order of the struct.
template <size_t kCount>
using CommandOperands = std::array<CommandOperand, kCount>;

/// Of commands that are not empty (cost.hpp).
CommandOperands<3> operands(const MatmulCommand& c);     // out, lhs, rhs
CommandOperands<2> operands(const TransposeCommand& c);  // src, dst
CommandOperands<2> operands(const DmaCommand& c);        // src, dst
CommandOperands<1> operands(const FillCommand& c);       // dst
/// src, dst, list. The indexed side counts with its whole span, whatever the list says.
CommandOperands<3> operands(const DmaIndexedCommand& c);
/// One window of the indexed side, from where a list value points.
StridePattern indexed_window(const DmaIndexedCommand& c);

}  // namespace tpu::spec
