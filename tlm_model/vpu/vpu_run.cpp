// The interpreter: walks the loops of a kernel and executes its sections block by block, one call
// per instruction and block, or per run of fused instructions. Masked lanes that nobody can see are
// not computed: those beyond the kernel's rows and columns, and in tail blocks those of sections
// whose registers stay inside; never where a reduction looks across them.
#include <algorithm>
#include <array>
#include <bit>
#include <memory>

#include "arith/flush_mode.hpp"
#include "vpu/vpu_kernel.hpp"
#include "vpu/vpu_ops.hpp"
#include "vpu/vpu_steps.hpp"

namespace tpu::model {
namespace {

using spec::VpuInsn;
using spec::VpuOp;

constexpr int kGranule = 16;  // words of the widest vector

// Of a thread.
struct alignas(64) RegisterFile {
  std::array<std::array<uint32_t, kVpuBlock>, kVpuRegisters> words;
  VpuSteps steps;
};

RegisterFile& register_file() {
  thread_local const auto file = std::make_unique<RegisterFile>();
  return *file;
}

int round_up(int lanes) { return (lanes + kGranule - 1) / kGranule * kGranule; }

}  // namespace

class VpuRunner {
 public:
  VpuRunner(const VpuKernel& kernel, uint8_t* vmem, const VpuOpTable& table,
            VpuKernel::Shifts shifts)
      : kernel_(kernel), vmem_(vmem), shifts_(shifts), table_(table), file_(register_file()) {
    const VpuProgram& program = *kernel.program_;
    const int block_cols = kernel.command_.flat() ? kVpuBlock : kVpuLanes;
    sees_rows_ =
        program.has_op(VpuOp::kSred) || (kernel.command_.flat() && program.has_op(VpuOp::kLred));
    sees_cols_ =
        program.has_op(VpuOp::kLred) || (kernel.command_.flat() && program.has_op(VpuOp::kSred));
    max_rows_ = kernel.command_.flat()
                    ? 1
                    : (sees_rows_ ? kVpuSublanes : clip(kernel.command_.rows, kVpuSublanes));
    max_lanes_ = sees_cols_ ? block_cols : clip(kernel.command_.cols, block_cols);
    reg_.fill({nullptr, kVpuLanes});
    for (size_t i = 0; i < file_.words.size(); ++i) {
      reg_[i].words = file_.words[i].data();
    }
    make_sections(program);
    file_.steps.make(kernel, table_, max_rows_);
  }

  // Iterations [begin, end) of `loop`; the loops around it run once.
  void run(int loop, uint32_t begin, uint32_t end) {
    std::array<uint32_t, kVpuLoops> first{};
    std::array<uint32_t, kVpuLoops> last = kernel_.command_.loops;
    first[static_cast<size_t>(loop)] = begin;
    last[static_cast<size_t>(loop)] = end;
    set_constants();
    section(VpuSection::kPre);
    for (index_[0] = first[0]; index_[0] < last[0]; ++index_[0]) {
      section(VpuSection::kEnter0);
      for (index_[1] = first[1]; index_[1] < last[1]; ++index_[1]) {
        section(VpuSection::kEnter1);
        for (index_[2] = first[2]; index_[2] < last[2]; ++index_[2]) {
          section(VpuSection::kEnter2);
          for (index_[3] = first[3]; index_[3] < last[3]; ++index_[3]) {
            section(VpuSection::kBody);
          }
          section(VpuSection::kLeave2);
        }
        section(VpuSection::kLeave1);
      }
      section(VpuSection::kLeave0);
    }
    section(VpuSection::kPost);
  }

 private:
  struct SectionInfo {
    bool clip_rows = false;
    bool clip_lanes = false;
  };
  // Where a register is: in the file, or memory itself.
  struct Place {
    uint32_t* words = nullptr;
    int64_t pitch = 0;  // words from row to row
  };

  void make_sections(const VpuProgram& program) {
    for (int s = 0; s < kVpuSections; ++s) {
      SectionInfo& info = sections_[static_cast<size_t>(s)];
      const bool local = program.section_is_local(s);
      const bool lred = program.section_has_op(s, VpuOp::kLred);
      const bool sred = program.section_has_op(s, VpuOp::kSred);
      info.clip_rows = local && !sred;
      info.clip_lanes = local && !lred && !(kernel_.command_.flat() && sred);
    }
  }

  void set_constants() {
    VpuOpArgs args{};
    args.flat = kernel_.command_.flat();
    args.rows = args.dense_rows = 1;
    args.lanes = args.dense_lanes = kVpuBlock;
    args.pitch_d = kVpuLanes;
    for (const VpuInsn& insn : file_.steps.constants()) {
      args.rd = reg_[insn.rd].words;
      args.imm = is_op(insn, VpuOp::kScalar) ? kernel_.scalars_[insn.imm] : insn.imm;
      table_.functions[insn.op](args);
    }
  }

  static int clip(uint32_t value, int limit) {
    return static_cast<int>(std::min(value, static_cast<uint32_t>(limit)));
  }

  // Index of a loop as the section sees it: 0 outside of the loop.
  uint32_t seen_index(uint8_t loop, int depth) const { return loop < depth ? index_[loop] : 0; }

  void section(VpuSection which) {
    const SectionInfo& info = sections_[static_cast<size_t>(which)];
    const std::span<const VpuStep> steps = file_.steps.of(which);
    if (steps.empty()) {
      return;
    }
    const int depth = kVpuSectionDepth[static_cast<size_t>(which)];
    const int block_cols = kernel_.command_.flat() ? kVpuBlock : kVpuLanes;
    const uint32_t row = seen_index(kernel_.command_.row_loop, depth) * kVpuSublanes;
    const uint32_t col =
        seen_index(kernel_.command_.col_loop, depth) * static_cast<uint32_t>(block_cols);
    VpuOpArgs args{};
    args.flat = kernel_.command_.flat();
    args.valid_rows = kernel_.command_.flat() ? 1 : clip(kernel_.command_.rows - row, kVpuSublanes);
    args.valid_lanes = clip(kernel_.command_.cols - col, block_cols);
    args.rows = info.clip_rows ? std::min(max_rows_, args.valid_rows) : max_rows_;
    args.lanes = round_up(info.clip_lanes ? std::min(max_lanes_, args.valid_lanes) : max_lanes_);
    const bool full = args.valid_rows >= args.rows && args.valid_lanes == args.lanes;
    for (size_t i = 0; i < steps.size();) {
      if (full && steps[i].fused >= 0) {
        const VpuFusedRun& run = file_.steps.fused(steps[i].fused);
        execute_fused(run, depth, args);
        i += run.steps;
      } else {
        execute(steps[i++], depth, full, args);
      }
    }
  }

  void execute_fused(const VpuFusedRun& run, int depth, const VpuOpArgs& args) {
    FusedArgs call;
    call.constants = file_.steps.splats().data();
    bool joined = args.rows == 1 || args.lanes == kVpuLanes;
    for (size_t i = 0; i < run.pointers.size(); ++i) {
      const Place place = fused_operand(run.pointers[i], depth);
      call.pointers[i] = reinterpret_cast<uint8_t*>(place.words);
      call.pitches[i] = place.pitch;
      joined &= args.rows == 1 || place.pitch == kVpuLanes * run.pointers[i].lane_bytes;
    }
    call.rows = joined ? 1 : args.rows;
    call.lanes = joined ? int64_t{args.rows} * args.lanes : args.lanes;
    run.code(call);
    for (uint32_t left = run.outputs; left != 0; left &= left - 1) {
      const auto r = static_cast<size_t>(std::countr_zero(left));
      reg_[r] = {file_.words[r].data(), kVpuLanes};
    }
  }

  // Its first row, and bytes from row to row.
  Place fused_operand(const VpuFusedPointer& pointer, int depth) const {
    switch (pointer.kind) {
      case VpuFusedPointer::Kind::kInput:
        return {reg_[pointer.number].words, reg_[pointer.number].pitch * 4};
      case VpuFusedPointer::Kind::kOutput:
        return {file_.words[pointer.number].data(), kVpuLanes * 4};
      case VpuFusedPointer::Kind::kAccess:
        break;
    }
    return {reinterpret_cast<uint32_t*>(address_of(pointer.number, depth)),
            kernel_.operands_[pointer.number].access.sub};
  }

  void execute(const VpuStep& step, int depth, bool full, VpuOpArgs& args) {
    const VpuInsn& insn = step.insn;
    if (step.done && full) {
      return;
    }
    args.imm = insn.imm;
    if (step.operand) {
      set_operand(insn, depth, args);
      if (step.in_place && full) {
        reg_[insn.rd] = memory(insn.imm, depth);
        return;
      }
    } else if (is_op(insn, VpuOp::kScalar)) {
      args.imm = kernel_.scalars_[insn.imm];
    }
    const Place &a = reg_[step.rs1], &b = reg_[step.rs2], &c = reg_[step.rs3];
    args.rs1 = step.splat1 >= 0 ? file_.steps.splat(step.splat1) : a.words;
    args.rs2 = step.splat2 >= 0 ? file_.steps.splat(step.splat2) : b.words;
    args.rs3 = c.words;
    args.pitch1 = a.pitch;
    args.pitch2 = b.pitch;
    args.pitch3 = c.pitch;
    Place result{file_.words[insn.rd % kVpuRegisters].data(), kVpuLanes};
    if (step.target >= 0 && full) {
      result = memory(static_cast<size_t>(step.target), depth);
    }
    args.rd = result.words;
    args.pitch_d = result.pitch;
    // Rows that all lie one after the other are one long row.
    const bool joined = args.lanes == kVpuLanes && a.pitch == kVpuLanes && b.pitch == kVpuLanes &&
                        c.pitch == kVpuLanes && result.pitch == kVpuLanes;
    args.dense_rows = joined ? 1 : args.rows;
    args.dense_lanes = joined ? args.rows * args.lanes : args.lanes;
    step.function(args);
    if (step.writes) {
      reg_[insn.rd] = result;
    }
  }

  int64_t offset_of(const VpuKernel::Operand& operand, int depth) const {
    int64_t offset = operand.base;
    for (int d = 0; d < depth; ++d) {
      const auto i = static_cast<size_t>(d);
      offset += int64_t{operand.access.loop[i]} * index_[i];
    }
    return offset;
  }

  uint8_t* address_of(size_t access, int depth) const {
    return vmem_ + (shifts_.empty() ? 0 : shifts_[access]) +
           offset_of(kernel_.operands_[access], depth);
  }

  // Words in memory as a register.
  Place memory(size_t access, int depth) const {
    return {reinterpret_cast<uint32_t*>(address_of(access, depth)),
            kernel_.command_.flat() || max_rows_ == 1 ? kVpuLanes
                                                      : kernel_.operands_[access].access.sub / 4};
  }

  void set_operand(const VpuInsn& insn, int depth, VpuOpArgs& args) const {
    const VpuKernel::Operand& operand = kernel_.operands_[insn.imm];
    args.sub = operand.access.sub;
    args.lane = operand.access.lane;
    if (static_cast<VpuOp>(insn.op) == VpuOp::kIndex) {
      args.imm = static_cast<uint32_t>(offset_of(operand, depth));
    } else {
      args.address = address_of(insn.imm, depth);
      args.type = operand.access.type;
      args.mode = insn.rs2;
    }
  }

  const VpuKernel& kernel_;
  uint8_t* vmem_;
  const VpuKernel::Shifts shifts_;
  VpuOpTable table_;
  RegisterFile& file_;
  bool sees_rows_ = false;  // some instruction reads across masked sublanes
  bool sees_cols_ = false;
  std::array<Place, kVpuRegisters + 1> reg_{};  // the last one stands for none
  int max_rows_ = 0;
  int max_lanes_ = 0;
  std::array<SectionInfo, kVpuSections> sections_{};
  std::array<uint32_t, kVpuLoops> index_{};
};

void VpuKernel::run(uint8_t* vmem, VpuSimd simd, Shifts shifts) const {
  run(vmem, vpu_ops(simd), shifts);
}

void VpuKernel::run(uint8_t* vmem, const VpuOpTable& table, Shifts shifts) const {
  if (!empty()) {
    const spec::ScopedFlushMode flush;
    VpuRunner(*this, vmem, table, shifts).run(0, 0, command_.loops[0]);
  }
}

void VpuKernel::run_range(uint8_t* vmem, uint64_t begin, uint64_t end, VpuSimd simd,
                          Shifts shifts) const {
  run_range(vmem, begin, end, vpu_ops(simd), shifts);
}

void VpuKernel::run_range(uint8_t* vmem, uint64_t begin, uint64_t end, const VpuOpTable& table,
                          Shifts shifts) const {
  if (begin < end) {
    const spec::ScopedFlushMode flush;
    VpuRunner(*this, vmem, table, shifts)
        .run(split_loop(), static_cast<uint32_t>(begin), static_cast<uint32_t>(end));
  }
}

}  // namespace tpu::model
