// Which bytes the loads and stores of a VPU kernel touch: exactly, section by section, for the
// model's bounds and its checker, and as one pattern a load or store for the compiler.
// Specification: spec/isa/vpu.toml, vpu_kernel in spec/isa/commands.toml.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "command/operands.hpp"
#include "command/stride_pattern.hpp"
#include "tpu/spec/board_params.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::spec {

inline constexpr int kVpuLanes = static_cast<int>(fixed_board_value("vpu", "lanes"));
inline constexpr int kVpuSublanes = static_cast<int>(fixed_board_value("vpu", "sublanes"));
inline constexpr int kVpuBlock = kVpuLanes * kVpuSublanes;

inline constexpr int kVpuSections = 9;
/// Number of loops around each section: loops 0 .. depth-1 enclose it.
inline constexpr std::array<int, kVpuSections> kVpuSectionDepth = {0, 1, 2, 3, 4, 3, 2, 1, 0};

/// The instructions of a VPU program, section by section.
using VpuSectionSpans = std::array<std::span<const VpuInsn>, kVpuSections>;
/// `code` holds what `header` says.
VpuSectionSpans vpu_sections(const VpuProgramHeader& header, std::span<const VpuInsn> code);

/// Bytes of an element in memory; 0 for types that the vector unit does not load (i64, ui64).
int vpu_element_bytes(uint8_t elem);

bool is_vpu_store(const VpuInsn& insn);
/// Of an access in memory; `index` has one that is none.
bool is_vpu_memory_op(const VpuInsn& insn);

/// Loops that take their turns, bit d for loop d; of others only the first turn counts.
using VpuLoopMask = uint32_t;
inline constexpr VpuLoopMask kVpuAllLoops = 0xf;
inline VpuLoopMask vpu_loops_around(int section) {
  return (1u << kVpuSectionDepth[static_cast<size_t>(section)]) - 1;
}

/// What a load or store touches, relative to its operand's address. The command is not empty, and
/// its loop counts fit its rows and columns.
class VpuFootprint {
 public:
  VpuFootprint(const VpuKernelCommand& c, const VpuAccess& a, const VpuInsn& insn,
               VpuLoopMask loops);

  ByteExtent extent() const;
  /// All of it; full blocks and the last ones may have to be told one by one.
  std::vector<StridePattern> patterns() const;
  /// One pattern that holds all of it: the last block of an axis counts whole unless rows or
  /// columns follow each other from block to block.
  StridePattern hull() const;

 private:
  using Level = StridePattern::Level;
  // What of a full block is touched along an axis: every `every`-th of the first `limit` elements.
  struct Touched {
    int64_t limit;
    int64_t every;
  };
  // Blocks of an axis that look the same: their places, and the elements of one.
  struct Blocks {
    int64_t offset = 0;
    Level places{1, 0};
    Level elements{1, 0};
  };
  struct Axis {
    std::array<Blocks, 2> part{};  // full blocks, the last one
    size_t parts = 1;
    Blocks hull{};
  };

  static Axis axis(int64_t total, int64_t block, const Touched& touched, int64_t stride,
                   std::optional<int64_t> block_stride);
  static ByteExtent extent_of(const Axis& axis);
  StridePattern pattern(const Blocks& rows, const Blocks& cols) const;

  int64_t element_bytes_;
  std::array<Level, 4> others_{};  // loops that walk over neither rows nor columns
  size_t others_count_ = 0;
  Axis rows_{}, cols_{};
};

/// What a load or store may touch: a hull under all loops, also those that do not enclose it.
CommandOperand operand(const VpuKernelCommand& c, const VpuAccess& a, const VpuInsn& insn);

}  // namespace tpu::spec
