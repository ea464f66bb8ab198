// Cost of commands, unit by unit.
#include "command/cost.hpp"

#include <algorithm>
#include <cstdlib>

#include "board/board_loader.hpp"

namespace tpu::spec {
namespace {

template <size_t kCount>
bool has_zero(const std::array<uint32_t, kCount>& counts) {
  return std::ranges::find(counts, 0u) != counts.end();
}

template <size_t kCount>
uint64_t product(const std::array<uint32_t, kCount>& counts) {
  uint64_t total = 1;
  for (const uint32_t count : counts) {
    total *= count;
  }
  return total;
}

uint64_t divide_up(uint64_t value, int64_t by) {
  const auto divisor = static_cast<uint64_t>(by);
  return (value + divisor - 1) / divisor;
}

}  // namespace

bool is_empty(const MatmulCommand& c) {
  return has_zero(c.m) || has_zero(c.t) || has_zero(c.k) || has_zero(c.n);
}
bool is_empty(const VpuKernelCommand& c) { return c.rows == 0 || c.cols == 0 || has_zero(c.loops); }
bool is_empty(const TransposeCommand& c) { return c.batch == 0 || c.rows == 0 || c.cols == 0; }
bool is_empty(const DmaCommand& c) { return has_zero(c.counts); }
bool is_empty(const FillCommand& c) { return has_zero(c.counts); }
bool is_empty(const DmaIndexedCommand& c) { return has_zero(c.counts) || c.records == 0; }

MxuShape mxu_shape(const BoardParams& board) {
  return {.rows = static_cast<uint32_t>(board.mxu.rows),
          .cols = static_cast<uint32_t>(board.mxu.cols),
          .sums = board.mxu.chains == 1 ? MxuSums::kSerial : MxuSums::kPairs,  // loader: no others
          .skew = static_cast<uint32_t>(board.mxu.skew),
          .load_rows = static_cast<uint32_t>(board.mxu.weight_rows_per_cycle)};
}

MxuCommandTiming matmul_timing(const MxuShape& shape, const MatmulCommand& c) {
  return mxu_command_timing(shape, {.rows = product(c.m),
                                    .taps = product(c.t),
                                    .k = product(c.k),
                                    .n_outer = c.n[0],
                                    .n_inner = c.n[1]});
}

uint64_t vpu_executions(const VpuKernelCommand& c, int section) {
  uint64_t result = is_empty(c) ? 0 : 1;
  for (int d = 0; d < kVpuSectionDepth[static_cast<size_t>(section)]; ++d) {
    result *= c.loops[static_cast<size_t>(d)];
  }
  return result;
}

CommandCycles vpu_cycles(const BoardParams& board, const VpuKernelCommand& c,
                         std::span<const VpuAccess> accesses, const VpuSectionSpans& program) {
  const auto& vpu = board.vpu;
  // Lanes that are neither adjacent nor one broadcast value pass one sublane a cycle.
  const auto passes = [&](const VpuInsn& insn) {
    if (accesses.empty()) {
      return uint64_t{1};
    }
    const VpuAccess& a = accesses[insn.imm];
    const bool strided = a.lane != 0 && std::abs(int64_t{a.lane}) != vpu_element_bytes(a.type);
    return strided ? static_cast<uint64_t>(vpu.sublanes) : uint64_t{1};
  };
  auto total = static_cast<uint64_t>(vpu.kernel_start_cycles);
  bool transcendental = false, reduction = false;
  for (int s = 0; s < kVpuSections; ++s) {
    uint64_t alu = 0, load = 0, store = 0, trans = 0, reduce = 0;
    for (const VpuInsn& insn : program[static_cast<size_t>(s)]) {
      const VpuOpInfo& info = kVpuOps[insn.op - 1u];
      alu += info.alu;
      load += info.load == 0 ? 0 : info.load * passes(insn);
      store += info.store == 0 ? 0 : info.store * passes(insn);
      trans += info.trans;
      reduce += info.reduce;
    }
    const uint64_t busiest = std::max({divide_up(alu, vpu.alus), divide_up(load, vpu.load_slots),
                                       divide_up(store, vpu.store_slots),
                                       trans * static_cast<uint64_t>(vpu.transcendental_interval),
                                       reduce * static_cast<uint64_t>(vpu.reduce_interval)});
    total += busiest * vpu_executions(c, s);
    transcendental |= trans != 0;
    reduction |= reduce != 0;
  }
  CommandCycles result{total, total};
  if (!is_empty(c)) {
    result.done_at += static_cast<uint64_t>(vpu.pipeline_latency);
    result.done_at += transcendental ? static_cast<uint64_t>(vpu.transcendental_latency) : 0;
    result.done_at += reduction ? static_cast<uint64_t>(vpu.reduce_latency) : 0;
  }
  result.free_at = std::max<uint64_t>(result.free_at, 1);
  result.done_at = std::max<uint64_t>(result.done_at, 1);
  return result;
}

CommandCycles transpose_cycles(const BoardParams& board, const TransposeCommand& c) {
  const auto lanes = static_cast<uint64_t>(board.vpu.lanes);
  const uint64_t full_r = c.rows / lanes, full_c = c.cols / lanes, rest_r = c.rows % lanes,
                 rest_c = c.cols % lanes;
  uint64_t cycles = full_r * full_c * lanes;
  cycles += (rest_r != 0 ? full_c * lanes : 0) + (rest_c != 0 ? full_r * lanes : 0);
  cycles += rest_r != 0 && rest_c != 0 ? std::max(rest_r, rest_c) : 0;
  cycles *= c.batch;
  return {cycles, cycles + static_cast<uint64_t>(board.xlu.latency)};
}

StridedBox transfer_box(const DmaCommand& c) {
  return normalise_box(c.elem_bytes, c.counts, &c.src_strides, c.dst_strides);
}
StridedBox transfer_box(const FillCommand& c) {
  return normalise_box(c.elem_bytes, c.counts, nullptr, c.dst_strides);
}
StridedBox transfer_box(const DmaIndexedCommand& c) {
  std::array<uint32_t, 5> counts{1, 1, 1, 1, 1};
  std::array<int64_t, 5> src{}, dst{};
  std::ranges::copy(c.counts, counts.begin() + 1);
  std::ranges::copy(c.src_strides, src.begin() + 1);
  std::ranges::copy(c.dst_strides, dst.begin() + 1);
  return normalise_box(c.elem_bytes, counts, &src, dst);
}

TransferBytes transfer_bytes(const BoardParams& board, const DmaCommand& c) {
  const StridedBox box = transfer_box(c);
  const auto granule = static_cast<uint64_t>(board.dma.granule_bytes);
  return {box_granule_bytes(box, BoxSide::kSrc, granule),
          box_granule_bytes(box, BoxSide::kDst, granule)};
}

TransferBytes transfer_bytes(const BoardParams& board, const FillCommand& c) {
  return {0, box_granule_bytes(transfer_box(c), BoxSide::kDst,
                               static_cast<uint64_t>(board.dma.granule_bytes))};
}

TransferBytes transfer_bytes(const BoardParams& board, const DmaIndexedCommand& c) {
  const auto granule = static_cast<uint64_t>(board.dma.granule_bytes);
  const bool scatter = c.scatter();
  const uint64_t windows =
      c.records *
      box_granule_bytes(transfer_box(c), scatter ? BoxSide::kDst : BoxSide::kSrc, granule);
  std::array<uint32_t, 5> counts{c.records};
  std::array<int64_t, 5> strides{c.record_stride};
  std::ranges::copy(c.counts, counts.begin() + 1);
  std::ranges::copy(scatter ? c.src_strides : c.dst_strides, strides.begin() + 1);
  const uint64_t rest = box_granule_bytes(normalise_box(c.elem_bytes, counts, nullptr, strides),
                                          BoxSide::kDst, granule);
  return scatter ? TransferBytes{rest, windows} : TransferBytes{windows, rest};
}

uint64_t transfer_fixed_cycles(const BoardParams& board, bool src_hbm, bool dst_hbm, bool remote) {
  uint64_t cycles = src_hbm ? cycles_from_ns(board, board.dma.in_fixed_ns) : 0;
  cycles += dst_hbm ? cycles_from_ns(board, board.dma.out_fixed_ns) : 0;
  return !remote && !src_hbm && !dst_hbm ? cycles_from_ns(board, board.dma.local_fixed_ns) : cycles;
}

}  // namespace tpu::spec
