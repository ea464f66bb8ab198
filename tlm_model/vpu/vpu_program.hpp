// A decoded and validated VPU program: nine instruction sections and what a kernel must know about
// their register use. Knows nothing of a command's loops and operands (vpu_kernel.hpp does).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "command/cost.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::model {

/// A VPU program or kernel command that cannot be decoded; the text says where and why.
class VpuError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using spec::kVpuAccesses, spec::kVpuBlock, spec::kVpuLanes, spec::kVpuLoops, spec::kVpuRegisters,
    spec::kVpuScalars, spec::kVpuSublanes;

/// Sections in the order of the program and of a first pass through all loops.
enum class VpuSection : uint8_t {
  kPre,
  kEnter0,
  kEnter1,
  kEnter2,
  kBody,
  kLeave2,
  kLeave1,
  kLeave0,
  kPost
};
using spec::kVpuSectionDepth;
using spec::kVpuSections;
inline constexpr std::array<std::string_view, kVpuSections> kVpuSectionNames = {
    "pre", "enter0", "enter1", "enter2", "body", "leave2", "leave1", "leave0", "post"};

/// Operands that an instruction has, read from the form string of spec::kVpuOps.
struct VpuForm {
  bool rd = false, rs1 = false, rs2 = false, rs3 = false;
  bool access = false, compare = false, reduce = false, mode = false;
};
VpuForm vpu_form(spec::VpuOp op);

class VpuProgram {
 public:
  /// Decodes the program at byte `offset` of `code`. Throws VpuError for anything that the ISA does
  /// not allow: unknown opcodes, registers beyond the header's count, lengths beyond the code,
  /// registers read before they are written.
  static VpuProgram decode(std::span<const std::byte> code, uint32_t offset);

  std::span<const spec::VpuInsn> section(int index) const {
    return std::span(insns_).subspan(
        start_[static_cast<size_t>(index)],
        start_[static_cast<size_t>(index) + 1] - start_[static_cast<size_t>(index)]);
  }
  spec::VpuSectionSpans sections() const {
    spec::VpuSectionSpans result;
    for (int i = 0; i < kVpuSections; ++i) {
      result[static_cast<size_t>(i)] = section(i);
    }
    return result;
  }
  /// Registers used, from the header.
  int registers() const { return registers_; }
  /// One more than the largest access number.
  int accesses() const { return accesses_; }
  bool has_op(spec::VpuOp op) const { return op_seen_[static_cast<size_t>(op)]; }
  bool section_has_op(int index, spec::VpuOp op) const;
  /// True when no register that the section writes is ever read outside of the same execution of
  /// the section: its masked lanes are then never seen.
  bool section_is_local(int index) const;
  /// Registers (bits) that some section reads before it writes them in the same execution.
  uint32_t exposed() const;
  /// True when iterations of `loop` share no register values but those made outside of it, and
  /// nothing runs after the loop.
  bool iterations_independent(int loop) const;

 private:
  void decode_insn(const spec::VpuInsn& insn, int section, size_t position);
  void analyse_registers();

  std::vector<spec::VpuInsn> insns_;
  std::array<size_t, kVpuSections + 1> start_{};
  int registers_ = 0;
  int accesses_ = 0;
  std::array<bool, spec::kVpuOps.size() + 1> op_seen_{};
  std::array<uint32_t, kVpuSections> written_{};  // bit r: register r is written
  std::array<uint32_t, kVpuSections> exposed_{};  // read before a write in the same execution
};

}  // namespace tpu::model
