// What a command must not say, whatever slots and registers hold: breaches are DESCRIPTOR faults of
// the model when the command starts. Bounds depend on slots and registers and are not here, nor is
// what a VPU program may say (tlm_model/vpu).
#pragma once

#include <cstdint>
#include <string>

#include "tpu/spec/board_params.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::spec {

/// The first rule that is broken; none if `detail` is 0.
struct Violation {
  uint32_t detail = 0;  ///< DETAIL_* of spec/regs/fault.toml
  std::string text;
};

/// Null for an opcode that does not exist.
const CommandInfo* command_info(uint8_t opcode);

/// Queue, waits, signals. The opcode exists.
Violation violation(const CommandHeader& head, const BoardParams& board);
/// Everything else; the header is not looked at again.
Violation violation(const MatmulCommand& c, const BoardParams& board);
Violation violation(const TransposeCommand& c, const BoardParams& board);
Violation violation(const DmaCommand& c, const BoardParams& board);
Violation violation(const FillCommand& c, const BoardParams& board);
Violation violation(const DmaIndexedCommand& c, const BoardParams& board);
/// Of a kernel: that the operands' addresses and scalars can be.
Violation violation(const VpuAccess& a);
Violation violation(const VpuKernelCommand& c);
/// A command that alone takes longer than the watchdog.
Violation violation_of_cycles(double cycles, const BoardParams& board);

}  // namespace tpu::spec
