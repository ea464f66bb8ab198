// The interface between the kernel interpreter and the lane code, which is compiled once per SIMD
// width: a table of functions, each doing one instruction on one block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vpu/vpu_fused_code.hpp"

namespace tpu::model {

/// Operands of one instruction on one block. Registers are 1,024 words, sublane major; lane-wise
/// operations take rows at any pitch, so that a register may be memory.
struct VpuOpArgs {
  uint32_t* rd;
  const uint32_t* rs1;
  const uint32_t* rs2;
  const uint32_t* rs3;
  // Words from a row of each to its next row: 128 in the register file, else what memory has.
  int64_t pitch_d, pitch1, pitch2, pitch3;
  uint32_t imm;  // as in the instruction; for `scalar` and `index` the value, start value
  // Lanes to compute: `rows` runs of `lanes` (a multiple of 16) words. Lane-wise operations run
  // over `dense_rows` x `dense_lanes`, the same lanes with full rows joined where all lie so.
  int rows, lanes;
  int dense_rows, dense_lanes;
  // Unmasked lanes among them. Flat blocks are one run of up to 1,024 lanes.
  int valid_rows, valid_lanes;
  bool flat;
  // Memory and index operands: address of lane (0, 0), strides in bytes, element type, store mode.
  uint8_t* address;
  int64_t sub, lane;
  uint8_t type, mode;
};

using VpuOpFn = void (*)(const VpuOpArgs&);

/// Indexed by VpuOp; entry 0 is unused. `splat1` and `splat2`: for operations whose rs1 or rs2 is a
/// constant, given as one vector (16 words) in place of a register; null where there is none.
/// `fused`: what code may be made that takes the place of several functions.
struct VpuOpTable {
  const VpuOpFn* functions;
  const VpuOpFn* splat1;
  const VpuOpFn* splat2;
  size_t count;
  FusedIsa fused = FusedIsa::kNone;
};

/// Need the host in flush mode (arith/flush_mode.hpp), and its instructions.
VpuOpTable vpu_ops_scalar();
#if defined(__x86_64__)
VpuOpTable vpu_ops_avx2();
VpuOpTable vpu_ops_avx512();
#else
VpuOpTable vpu_ops_neon();
#endif

}  // namespace tpu::model
