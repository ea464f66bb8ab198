// The interpreter: walks the loops of a kernel and executes its sections block by block, one call
// per instruction and block. Masked lanes that nobody can see are not computed: those beyond the
// kernel's rows and columns, and in tail blocks those of sections whose registers stay inside;
// never where a reduction looks across them.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "arith/flush_mode.hpp"
#include "vpu/vpu_kernel.hpp"
#include "vpu/vpu_ops.hpp"

namespace tpu::model {
namespace {

using spec::VpuInsn;
using spec::VpuOp;

constexpr int kGranule = 16;  // words of the widest vector

// An instruction as the runner executes it.
struct Step {
  VpuInsn insn;
  VpuOpFn function;
  bool writes = false;    // a register
  bool operand = false;   // has an address or an index
  bool in_place = false;  // a load whose register may be the memory itself for a full block
};

// Of a thread.
struct alignas(64) RegisterFile {
  std::array<std::array<uint32_t, kVpuBlock>, kVpuRegisters> words;
  std::vector<Step> steps;
};

RegisterFile& register_file() {
  thread_local const auto file = std::make_unique<RegisterFile>();
  return *file;
}

bool is_op(const VpuInsn& insn, VpuOp op) { return static_cast<VpuOp>(insn.op) == op; }

bool is_constant(const VpuInsn& insn) {
  return is_op(insn, VpuOp::kImm) || is_op(insn, VpuOp::kScalar);
}

bool reads(const VpuInsn& insn, uint8_t number) {
  const VpuForm form = vpu_form(static_cast<VpuOp>(insn.op));
  return (form.rs1 && insn.rs1 == number) || (form.rs2 && insn.rs2 == number) ||
         (form.rs3 && (insn.imm & 0xffu) == number);
}

int round_up(int lanes) { return (lanes + kGranule - 1) / kGranule * kGranule; }

}  // namespace

class VpuRunner {
 public:
  VpuRunner(const VpuKernel& kernel, uint8_t* vmem, const VpuOpTable& table)
      : kernel_(kernel), vmem_(vmem), table_(table), file_(register_file()) {
    const VpuProgram& program = *kernel.program_;
    const int block_cols = kernel.flat_ ? kVpuBlock : kVpuLanes;
    sees_rows_ = program.has_op(VpuOp::kSred) || (kernel.flat_ && program.has_op(VpuOp::kLred));
    sees_cols_ = program.has_op(VpuOp::kLred) || (kernel.flat_ && program.has_op(VpuOp::kSred));
    max_rows_ = kernel.flat_ ? 1 : (sees_rows_ ? kVpuSublanes : clip(kernel.rows_, kVpuSublanes));
    max_lanes_ = sees_cols_ ? block_cols : clip(kernel.cols_, block_cols);
    for (size_t i = 0; i < reg_.size(); ++i) {
      reg_[i] = file_.words[i].data();
    }
    make_steps(program);
  }

  // Iterations [begin, end) of `loop`; the loops around it run once.
  void run(int loop, uint32_t begin, uint32_t end) {
    std::array<uint32_t, kVpuLoops> first{};
    std::array<uint32_t, kVpuLoops> last = kernel_.loops_;
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
    size_t first = 0;  // of its steps
    size_t count = 0;
    bool clip_rows = false;
    bool clip_lanes = false;
  };

  void make_steps(const VpuProgram& program) {
    std::array<int, kVpuRegisters> writers{};
    for (int s = 0; s < kVpuSections; ++s) {
      for (const VpuInsn& insn : program.section(s)) {
        writers[insn.rd] += vpu_form(static_cast<VpuOp>(insn.op)).rd ? 1 : 0;
      }
    }
    footprints_ = kernel_.footprints();
    file_.steps.clear();
    for (int s = 0; s < kVpuSections; ++s) {
      SectionInfo& info = sections_[static_cast<size_t>(s)];
      const std::span<const VpuInsn> insns = program.section(s);
      const bool local = program.section_is_local(s);
      const bool lred = program.section_has_op(s, VpuOp::kLred);
      const bool sred = program.section_has_op(s, VpuOp::kSred);
      info.clip_rows = local && !sred;
      info.clip_lanes = local && !lred && !(kernel_.flat_ && sred);
      info.first = file_.steps.size();
      for (size_t i = 0; i < insns.size(); ++i) {
        const VpuInsn& insn = insns[i];
        if (is_constant(insn) && writers[insn.rd] == 1) {
          constants_.push_back(insn);  // the same in every block
          continue;
        }
        file_.steps.push_back({.insn = insn,
                               .function = table_.functions[insn.op],
                               .writes = vpu_form(static_cast<VpuOp>(insn.op)).rd,
                               .operand = vpu_form(static_cast<VpuOp>(insn.op)).access,
                               .in_place = local && can_stay(insns, i)});
      }
      info.count = file_.steps.size() - info.first;
    }
  }

  // True when the register that insns[at] loads may be the memory itself until it is written again:
  // whole words in order, and no store that could change them while they are read.
  bool can_stay(std::span<const VpuInsn> insns, size_t at) const {
    const VpuInsn& load = insns[at];
    if (!is_op(load, VpuOp::kLoad)) {
      return false;
    }
    const VpuKernel::Operand& from = kernel_.operands_[load.imm];
    const bool dense =
        from.lane == 4 && (kernel_.flat_ || max_rows_ == 1 || from.sub == kVpuLanes * int64_t{4});
    if (!dense || vpu_element_bytes(from.type) != 4) {
      return false;
    }
    size_t last = at;  // last reader
    for (size_t i = at + 1; i < insns.size(); ++i) {
      last = reads(insns[i], load.rd) ? i : last;
      if (vpu_form(static_cast<VpuOp>(insns[i].op)).rd && insns[i].rd == load.rd) {
        break;
      }
    }
    for (size_t i = at + 1; i <= last; ++i) {
      if (is_op(insns[i], VpuOp::kStore) && overlap(load.imm, insns[i].imm)) {
        return false;
      }
    }
    return true;
  }

  bool overlap(uint32_t a, uint32_t b) const {
    for (const VpuFootprint& x : footprints_) {
      for (const VpuFootprint& y : footprints_) {
        if (x.access == static_cast<int>(a) && y.access == static_cast<int>(b) && x.begin < y.end &&
            y.begin < x.end) {
          return true;
        }
      }
    }
    return false;
  }

  void set_constants() {
    VpuOpArgs args{};
    args.flat = kernel_.flat_;
    args.rows = args.dense_rows = 1;
    args.lanes = args.dense_lanes = kVpuBlock;
    for (const VpuInsn& insn : constants_) {
      args.rd = reg_[insn.rd];
      args.imm = is_op(insn, VpuOp::kScalar) ? kernel_.scalars_[insn.imm] : insn.imm;
      table_.functions[insn.op](args);
    }
  }

  static int clip(uint32_t value, int limit) {
    return static_cast<int>(std::min(value, static_cast<uint32_t>(limit)));
  }

  // Index of a loop as the section sees it: 0 outside of the loop.
  uint32_t seen_index(int loop, int depth) const {
    return loop >= 0 && loop < depth ? index_[static_cast<size_t>(loop)] : 0;
  }

  void section(VpuSection which) {
    const SectionInfo& info = sections_[static_cast<size_t>(which)];
    if (info.count == 0) {
      return;
    }
    const int depth = kVpuSectionDepth[static_cast<size_t>(which)];
    const int block_cols = kernel_.flat_ ? kVpuBlock : kVpuLanes;
    const uint32_t row = seen_index(kernel_.row_loop_, depth) * kVpuSublanes;
    const uint32_t col = seen_index(kernel_.col_loop_, depth) * static_cast<uint32_t>(block_cols);
    VpuOpArgs args{};
    args.flat = kernel_.flat_;
    args.valid_rows = kernel_.flat_ ? 1 : clip(kernel_.rows_ - row, kVpuSublanes);
    args.valid_lanes = clip(kernel_.cols_ - col, block_cols);
    args.rows = info.clip_rows ? std::min(max_rows_, args.valid_rows) : max_rows_;
    args.lanes = round_up(info.clip_lanes ? std::min(max_lanes_, args.valid_lanes) : max_lanes_);
    const bool joined = args.lanes == kVpuLanes;
    args.dense_rows = joined ? 1 : args.rows;
    args.dense_lanes = joined ? args.rows * args.lanes : args.lanes;
    const bool full = args.valid_rows >= args.rows && args.valid_lanes == args.lanes;
    const Step* step = file_.steps.data() + info.first;
    for (size_t i = 0; i < info.count; ++i, ++step) {
      execute(*step, depth, full, args);
    }
  }

  void execute(const Step& step, int depth, bool full, VpuOpArgs& args) {
    const VpuInsn& insn = step.insn;
    args.rs1 = reg_[insn.rs1 % kVpuRegisters];
    args.rs2 = reg_[insn.rs2 % kVpuRegisters];
    args.rs3 = reg_[insn.imm % kVpuRegisters];
    args.imm = insn.imm;
    if (step.operand) {
      set_operand(kernel_.operands_[insn.imm], insn, depth, args);
      if (step.in_place && full) {
        reg_[insn.rd] = reinterpret_cast<uint32_t*>(args.address);
        return;
      }
    } else if (is_op(insn, VpuOp::kScalar)) {
      args.imm = kernel_.scalars_[insn.imm];
    }
    if (step.writes) {
      args.rd = reg_[insn.rd] = file_.words[insn.rd].data();
    }
    step.function(args);
  }

  void set_operand(const VpuKernel::Operand& operand, const VpuInsn& insn, int depth,
                   VpuOpArgs& args) const {
    int64_t offset = operand.base;
    for (int d = 0; d < depth; ++d) {
      const auto i = static_cast<size_t>(d);
      offset += operand.loop[i] * index_[i];
    }
    args.sub = operand.sub;
    args.lane = operand.lane;
    if (static_cast<VpuOp>(insn.op) == VpuOp::kIndex) {
      args.imm = static_cast<uint32_t>(offset);
    } else {
      args.address = vmem_ + offset;
      args.type = operand.type;
      args.mode = insn.rs2;
    }
  }

  const VpuKernel& kernel_;
  uint8_t* vmem_;
  VpuOpTable table_;
  RegisterFile& file_;
  bool sees_rows_ = false;  // some instruction reads across masked sublanes
  bool sees_cols_ = false;
  std::array<uint32_t*, kVpuRegisters> reg_{};  // where each register is: file or memory
  std::vector<VpuFootprint> footprints_;
  std::vector<VpuInsn> constants_;
  int max_rows_ = 0;
  int max_lanes_ = 0;
  std::array<SectionInfo, kVpuSections> sections_{};
  std::array<uint32_t, kVpuLoops> index_{};
};

void VpuKernel::run(uint8_t* vmem, VpuSimd simd) const { run(vmem, vpu_ops(simd)); }

void VpuKernel::run(uint8_t* vmem, const VpuOpTable& table) const {
  if (!empty()) {
    const spec::ScopedFlushMode flush;
    VpuRunner(*this, vmem, table).run(0, 0, loops_[0]);
  }
}

void VpuKernel::run_range(uint8_t* vmem, uint64_t begin, uint64_t end, VpuSimd simd) const {
  run_range(vmem, begin, end, vpu_ops(simd));
}

void VpuKernel::run_range(uint8_t* vmem, uint64_t begin, uint64_t end,
                          const VpuOpTable& table) const {
  if (begin < end) {
    const spec::ScopedFlushMode flush;
    VpuRunner(*this, vmem, table)
        .run(split_loop(), static_cast<uint32_t>(begin), static_cast<uint32_t>(end));
  }
}

}  // namespace tpu::model
