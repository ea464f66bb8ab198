// How the interpreter executes the instructions of a kernel: which registers are constants, which
// are memory itself in place of a copy, which instructions are one piece of code (vpu_fuse.cpp).
// Decided once a run; what a kernel computes never depends on it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "vpu/vpu_kernel.hpp"
#include "vpu/vpu_ops.hpp"

namespace tpu::model {

inline bool is_op(const spec::VpuInsn& insn, spec::VpuOp op) {
  return static_cast<spec::VpuOp>(insn.op) == op;
}

/// One instruction. Marks that name memory hold for full blocks; others take the register file.
struct VpuStep {
  spec::VpuInsn insn;
  VpuOpFn function = nullptr;
  bool writes = false;    // a register
  bool operand = false;   // has an address or an index
  bool in_place = false;  // a load whose register is the memory itself until it is written again
  bool done = false;      // a store whose value the instruction that made it has written there
  // Registers that are read; kVpuRegisters stands for none.
  uint8_t rs1 = kVpuRegisters, rs2 = kVpuRegisters, rs3 = kVpuRegisters;
  int target = -1;               // access into which the result goes, in place of the register file
  int splat1 = -1, splat2 = -1;  // constant in place of rs1, rs2: index into VpuSteps::splats
  int fused = -1;                // for full blocks, code in place of this step and some behind it

  bool reads(uint8_t number) const { return rs1 == number || rs2 == number || rs3 == number; }
};

/// Where fused code finds an operand.
struct VpuFusedPointer {
  enum class Kind : uint8_t { kAccess, kInput, kOutput };  // memory, registers
  Kind kind = Kind::kAccess;
  uint8_t number = 0;      // of the access or register
  uint8_t lane_bytes = 0;  // from lane to lane
};

/// Code in place of several steps (vpu_fused_code.hpp).
struct VpuFusedRun {
  FusedFn code = nullptr;
  size_t steps = 0;
  std::vector<VpuFusedPointer> pointers;
  uint32_t outputs = 0;  // bits of the registers that hold results behind it, in the register file
};

/// A constant, as wide as the widest vector.
struct alignas(64) VpuSplat {
  std::array<uint32_t, 16> words;
};

/// Steps of all sections. `rows`: most rows of a block that are computed.
class VpuSteps {
 public:
  struct Section {
    size_t first = 0;
    size_t count = 0;
  };

  void make(const VpuKernel& kernel, const VpuOpTable& table, int rows);

  std::span<const VpuStep> of(VpuSection section) const {
    const Section& s = sections_[static_cast<size_t>(section)];
    return std::span(steps_).subspan(s.first, s.count);
  }
  const uint32_t* splat(int index) const {
    return splats_[static_cast<size_t>(index)].words.data();
  }
  std::span<const VpuSplat> splats() const { return splats_; }
  const VpuFusedRun& fused(int index) const { return fused_[static_cast<size_t>(index)]; }
  /// Constants that fill a register for the whole run.
  std::span<const spec::VpuInsn> constants() const { return constants_; }

 private:
  using Insns = std::span<const spec::VpuInsn>;

  static constexpr int kNone = -1;
  enum class Made : uint8_t { kNo, kHere, kOnce };
  // By step.
  struct Constants {
    std::vector<Made> made;
    std::vector<std::array<int, 2>> read;
    std::vector<bool> in_register;  // of those made: some reader wants all lanes
  };

  void trace_constants(const VpuProgram& program, Constants& all) const;
  static uint32_t constant_word(const VpuKernel& kernel, const spec::VpuInsn& insn);
  void find_overlaps(const VpuKernel& kernel);
  bool overlap(uint32_t a, uint32_t b) const { return (overlaps_[a] >> b & 1) != 0; }
  void find_splats(const VpuKernel& kernel, const VpuOpTable& table, std::vector<bool>& dropped);
  void find_loads(const VpuKernel& kernel, Insns insns, std::span<VpuStep> steps) const;
  void find_stores(const VpuKernel& kernel, Insns insns, std::span<VpuStep> steps) const;
  bool can_stay(const VpuKernel& kernel, Insns insns, size_t at) const;
  bool can_write(const VpuKernel& kernel, Insns insns, std::span<const VpuStep> steps, size_t maker,
                 size_t store) const;
  void fuse(const VpuKernel& kernel, FusedIsa isa, Section section, uint32_t exposed);
  bool fuse_run(const VpuKernel& kernel, FusedIsa isa, Section section, Section run,
                uint32_t exposed);
  VpuFusedRun make_run(const VpuKernel& kernel, FusedIsa isa, Section section, Section run,
                       uint32_t exposed);
  bool can_fuse(const VpuKernel& kernel, const VpuStep& step) const;
  bool can_follow(const VpuKernel& kernel, Section run, const VpuStep& step) const;
  bool same_lanes(const VpuKernel& kernel, uint32_t a, uint32_t b) const;
  bool seen_behind(Section section, size_t end, uint8_t number, uint32_t exposed) const;
  bool dense_words(const VpuKernel& kernel, uint32_t access) const;
  bool plain_rows(const VpuKernel& kernel, uint32_t access) const;

  std::vector<VpuStep> steps_;
  std::array<Section, kVpuSections> sections_{};
  std::vector<VpuSplat> splats_;
  std::vector<VpuFusedRun> fused_;
  std::array<int, kVpuRegisters> always_{};  // splat of the constant that fills a register, or none
  std::vector<spec::VpuInsn> constants_;
  std::array<uint64_t, kVpuAccesses> overlaps_{};  // by access: bits of those that share bytes
  int rows_ = 0;
};

}  // namespace tpu::model
