// The interface between the kernel interpreter and the lane code, which is compiled once per SIMD
// width: a table of functions, each doing one instruction on one block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpu::model {

/// Operands of one instruction on one block. Registers are 1,024 words, sublane major.
struct VpuOpArgs {
  uint32_t* rd;
  const uint32_t* rs1;
  const uint32_t* rs2;
  const uint32_t* rs3;
  uint32_t imm;  // as in the instruction; for `scalar` and `index` the value, start value
  // Lanes to compute: `rows` runs of `lanes` (a multiple of 16) words, each 128 words after the
  // one before. Lane-wise operations run over `dense_rows` x `dense_lanes`, the same lanes with
  // full rows joined.
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

/// Indexed by VpuOp; entry 0 is unused.
struct VpuOpTable {
  const VpuOpFn* functions;
  size_t count;
};

/// Need the host's MXCSR in flush mode (arith/flush_mode.hpp) and its instructions.
VpuOpTable vpu_ops_scalar();
VpuOpTable vpu_ops_avx2();
VpuOpTable vpu_ops_avx512();

}  // namespace tpu::model
