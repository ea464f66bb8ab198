// What commands cost: the one place from which the model's engines, the compiler's estimate and the
// tests take a command's cycles. Cycles count from the start of the command: `free_at` is when the
// next command of the queue may start, `done_at` when the results are visible. A transfer has no
// such times of its own, since it shares bandwidth (bandwidth_share.hpp); here are its bytes and
// its fixed part. Specification: docs/timing_model.md.
#pragma once

#include <cstdint>
#include <span>

#include "arith/mxu_shape.hpp"
#include "arith/mxu_timing.hpp"
#include "command/strided_box.hpp"
#include "command/vpu_footprint.hpp"
#include "tpu/spec/board_params.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::spec {

struct CommandCycles {
  uint64_t free_at = 1;
  uint64_t done_at = 1;
};

/// A count is 0: the command does nothing, in the time of a nop.
inline bool is_empty(const NopCommand& /*c*/) { return false; }
bool is_empty(const MatmulCommand& c);
bool is_empty(const VpuKernelCommand& c);
bool is_empty(const TransposeCommand& c);
bool is_empty(const DmaCommand& c);
bool is_empty(const FillCommand& c);
bool is_empty(const DmaIndexedCommand& c);

MxuShape mxu_shape(const BoardParams& board);

/// Of a command that is not empty.
MxuCommandTiming matmul_timing(const MxuShape& shape, const MatmulCommand& c);

/// First start of a matmul that accumulates on `out`, for one in flight whose result, `before`, is
/// there at `done_at`: its first tile, `load` cycles after its start, takes what it finds there.
inline uint64_t accumulate_start(const ByteExtent& out, uint64_t load, const ByteExtent& before,
                                 uint64_t done_at) {
  const bool meet = out.low < before.high && before.low < out.high;
  return meet && done_at > load ? done_at - load : 0;
}

/// Executions of a section in the whole command.
uint64_t vpu_executions(const VpuKernelCommand& c, int section);

/// A software-pipelined loop: per execution of a section its busiest slot. Every access that the
/// program names is in `accesses`; with none given all lanes count as adjacent. At least
/// one cycle.
CommandCycles vpu_cycles(const BoardParams& board, const VpuKernelCommand& c,
                         std::span<const VpuAccess> accesses, const VpuSectionSpans& program);

/// Blocks of vpu.lanes x vpu.lanes: whole ones, a ragged row and column of them, the corner.
CommandCycles transpose_cycles(const BoardParams& board, const TransposeCommand& c);

/// What both sides of a transfer cost: each contiguous run rounded up to dma.granule_bytes.
struct TransferBytes {
  uint64_t src = 0;  // 0 for a fill
  uint64_t dst = 0;
  uint64_t carried() const { return src > dst ? src : dst; }
};

/// Normal form of what is copied; of an indexed transfer, of one window.
StridedBox transfer_box(const DmaCommand& c);
StridedBox transfer_box(const FillCommand& c);
StridedBox transfer_box(const DmaIndexedCommand& c);

TransferBytes transfer_bytes(const BoardParams& board, const DmaCommand& c);
TransferBytes transfer_bytes(const BoardParams& board, const FillCommand& c);
/// The indexed side counts one window for every record, skipped ones too.
TransferBytes transfer_bytes(const BoardParams& board, const DmaIndexedCommand& c);

/// Fixed part of a transfer between memories, in front of what links add: by sides in HBM.
/// `remote`: to another core, so that the way inside of the core does not count.
uint64_t transfer_fixed_cycles(const BoardParams& board, bool src_hbm, bool dst_hbm, bool remote);

}  // namespace tpu::spec
