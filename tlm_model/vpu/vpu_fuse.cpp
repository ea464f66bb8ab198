// Finds runs of steps that fused code (vpu_fused_code.hpp) can take the place of, and says them as
// values. Example: load r0; load r1; r0 = r0 * r1; r0 = r0 + r2; store r0 becomes
//   v0 = load a0; v1 = load a1; v2 = v0 * v1; v3 = load r2; v4 = v2 + v3; store v4
// Fused code does all instructions for some lanes before it goes to the next lanes: in a run,
// accesses that share bytes with a store must have them in the same lanes.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "vpu/vpu_steps.hpp"

namespace tpu::model {
namespace {

using spec::Elem;
using spec::VpuOp;
using Kind = VpuFusedPointer::Kind;

VpuOp op_of(const VpuStep& step) { return static_cast<VpuOp>(step.insn.op); }
bool is_load(const VpuStep& step) { return op_of(step) == VpuOp::kLoad; }
bool is_store(const VpuStep& step) { return op_of(step) == VpuOp::kStore; }

// What code saves over one pass for each step: the first such step of a run would be a pass anyway.
bool is_pass(const VpuStep& step, bool words) {
  switch (op_of(step)) {
    case VpuOp::kLoad:
    case VpuOp::kStore:
      return !words;
    case VpuOp::kImm:
    case VpuOp::kScalar:
      return false;
    default:
      return true;
  }
}

// The operations of a run, as steps are added.
class RunBuilder {
 public:
  // `always`: by register the splat of a constant that fills it for the whole kernel, or -1.
  RunBuilder(std::vector<VpuSplat>& splats, const std::array<int, kVpuRegisters>& always)
      : splats_(splats), always_(always) {
    values_.fill(kFusedNoSource);
  }

  void load(const VpuStep& step, uint8_t type, int64_t lane_bytes) {
    const uint8_t pointer =
        add_pointer(Kind::kAccess, static_cast<uint8_t>(step.insn.imm), lane_bytes);
    define(step.insn.rd, {.op = step.insn.op,
                          .detail = type,
                          .pointer = pointer,
                          .broadcast = static_cast<uint8_t>(lane_bytes == 0),
                          .source = {kFusedNoSource, kFusedNoSource, kFusedNoSource}});
  }

  void store(const VpuStep& step, uint8_t type, int64_t lane_bytes) {
    FusedOp op{.op = step.insn.op, .detail = type};
    op.source[0] = source(step.rs1, -1);
    op.pointer = add_pointer(Kind::kAccess, static_cast<uint8_t>(step.insn.imm), lane_bytes);
    ops_.push_back(op);
  }

  void constant(const VpuStep& step, uint32_t word) {
    FusedOp op{.op = static_cast<uint8_t>(VpuOp::kImm)};
    op.source[0] = static_cast<uint16_t>(splats_.size()) | kFusedConstant;
    splats_.emplace_back().words.fill(word);
    define(step.insn.rd, op);
  }

  void copy(const VpuStep& step) {
    values_[step.insn.rd] = value_of(step.rs1);
    written_ |= 1u << step.insn.rd;
  }

  void lanewise(const VpuStep& step) {
    FusedOp op{.op = step.insn.op};
    op.source = {source(step.rs1, step.splat1), source(step.rs2, step.splat2),
                 source(step.rs3, -1)};
    switch (op_of(step)) {
      case VpuOp::kMinF:
      case VpuOp::kMaxF:
        if ((op.source[0] & kFusedConstant) != 0) {  // either order gives the same
          std::swap(op.source[0], op.source[1]);
        }
        op.detail = static_cast<uint8_t>(limit(step, op.source[1]));
        break;
      case VpuOp::kCmpF:
      case VpuOp::kCmpS:
      case VpuOp::kCmpU:
        op.detail = static_cast<uint8_t>(step.insn.imm);
        break;
      default:
        break;
    }
    define(step.insn.rd, op);
  }

  /// The value of a register that is seen behind the run.
  void output(uint8_t number) {
    FusedOp op{.op = static_cast<uint8_t>(VpuOp::kStore),
               .detail = static_cast<uint8_t>(Elem::kI32)};
    op.source[0] = values_[number];
    op.pointer = add_pointer(Kind::kOutput, number, 4);
    ops_.push_back(op);
  }

  uint32_t written() const { return written_; }
  std::span<const FusedOp> ops() const { return ops_; }
  std::vector<VpuFusedPointer> pointers() && { return std::move(pointers_); }

 private:
  uint8_t add_pointer(Kind kind, uint8_t number, int64_t lane_bytes) {
    const auto found = std::ranges::find_if(
        pointers_, [&](const VpuFusedPointer& p) { return p.kind == kind && p.number == number; });
    if (found != pointers_.end()) {
      return static_cast<uint8_t>(found - pointers_.begin());
    }
    pointers_.push_back({kind, number, static_cast<uint8_t>(lane_bytes)});
    return static_cast<uint8_t>(pointers_.size() - 1);
  }

  void define(uint8_t number, const FusedOp& op) {
    values_[number] = static_cast<uint16_t>(ops_.size());
    written_ |= 1u << number;
    ops_.push_back(op);
  }

  uint16_t value_of(uint8_t number) {
    if (values_[number] == kFusedNoSource) {
      values_[number] = static_cast<uint16_t>(ops_.size());
      ops_.push_back({.op = static_cast<uint8_t>(VpuOp::kLoad),
                      .detail = static_cast<uint8_t>(Elem::kI32),
                      .pointer = add_pointer(Kind::kInput, number, 4),
                      .broadcast = 0,
                      .source = {kFusedNoSource, kFusedNoSource, kFusedNoSource}});
    }
    return values_[number];
  }

  uint16_t source(uint8_t number, int splat) {
    if (splat >= 0) {
      return static_cast<uint16_t>(splat) | kFusedConstant;
    }
    if (number >= kVpuRegisters) {
      return kFusedNoSource;
    }
    return always_[number] >= 0 ? source(kVpuRegisters, always_[number]) : value_of(number);
  }

  FusedLimit limit(const VpuStep& step, uint16_t source) const {
    if ((source & kFusedConstant) == 0) {
      return FusedLimit::kUnknown;
    }
    const uint32_t word = splats_[source & ~kFusedConstant].words[0];
    const uint32_t magnitude = word & 0x7fffffffu;
    if (word == 0 && op_of(step) == VpuOp::kMaxF) {
      return FusedLimit::kZero;
    }
    return magnitude >= 0x00800000u && magnitude <= 0x7f800000u ? FusedLimit::kPlain
                                                                : FusedLimit::kUnknown;
  }

  std::vector<VpuSplat>& splats_;
  const std::array<int, kVpuRegisters>& always_;
  std::vector<FusedOp> ops_;
  std::vector<VpuFusedPointer> pointers_;
  std::array<uint16_t, kVpuRegisters> values_{};
  uint32_t written_ = 0;
};

}  // namespace

// Marks the runs of a section. Its results do not go to memory earlier than their stores then, and
// registers are memory only where no store of the section can change it.
void VpuSteps::fuse(const VpuKernel& kernel, FusedIsa isa, Section section, uint32_t exposed) {
  const size_t end = section.first + section.count;
  bool any = false;
  for (size_t i = section.first; i < end;) {
    Section run{i, 0};
    while (i < end && can_fuse(kernel, steps_[i]) && can_follow(kernel, run, steps_[i])) {
      ++run.count;
      ++i;
    }
    any |= fuse_run(kernel, isa, section, run, exposed);
    i += run.count == 0 ? 1 : 0;
  }
  if (!any) {
    return;
  }
  for (VpuStep& step : std::span(steps_).subspan(section.first, section.count)) {
    step.target = kNone;
    step.done = false;
    step.in_place =
        step.in_place &&
        std::ranges::none_of(std::span(steps_).subspan(section.first, section.count),
                             [&](const VpuStep& other) {
                               return is_store(other) && overlap(step.insn.imm, other.insn.imm);
                             });
  }
}

// True when the run, or parts of it, became code.
bool VpuSteps::fuse_run(const VpuKernel& kernel, FusedIsa isa, Section section, Section run,
                        uint32_t exposed) {
  const auto passes = std::ranges::count_if(
      std::span(steps_).subspan(run.first, run.count), [&](const VpuStep& step) {
        const bool words =
            !step.operand || vpu_element_bytes(kernel.operands_[step.insn.imm].access.type) == 4;
        return is_pass(step, words);
      });
  if (passes < 2) {
    return false;
  }
  const size_t splats = splats_.size();
  VpuFusedRun made = make_run(kernel, isa, section, run, exposed);
  if (made.code == nullptr) {  // more values than the host has registers
    splats_.resize(splats);
    const size_t half = run.count / 2;
    const bool low = fuse_run(kernel, isa, section, {run.first, half}, exposed);
    const bool high = fuse_run(kernel, isa, section, {run.first + half, run.count - half}, exposed);
    return low || high;
  }
  steps_[run.first].fused = static_cast<int>(fused_.size());
  fused_.push_back(std::move(made));
  return true;
}

VpuFusedRun VpuSteps::make_run(const VpuKernel& kernel, FusedIsa isa, Section section, Section run,
                               uint32_t exposed) {
  RunBuilder builder(splats_, always_);
  for (size_t i = run.first; i < run.first + run.count; ++i) {
    const VpuStep& step = steps_[i];
    switch (op_of(step)) {
      case VpuOp::kLoad:
      case VpuOp::kStore: {
        const spec::VpuAccess& access = kernel.operands_[step.insn.imm].access;
        is_load(step) ? builder.load(step, access.type, access.lane)
                      : builder.store(step, access.type, access.lane);
        break;
      }
      case VpuOp::kImm:
      case VpuOp::kScalar:
        builder.constant(step, constant_word(kernel, step.insn));
        break;
      case VpuOp::kMov:
      case VpuOp::kMaskid:  // of a full block
        builder.copy(step);
        break;
      default:
        builder.lanewise(step);
    }
  }
  VpuFusedRun result{.code = nullptr, .steps = run.count, .pointers = {}, .outputs = 0};
  for (uint8_t r = 0; r < kVpuRegisters; ++r) {
    if ((builder.written() >> r & 1) != 0 &&
        seen_behind(section, run.first + run.count, r, exposed)) {
      builder.output(r);
      result.outputs |= 1u << r;
    }
  }
  result.code = fused_code(isa, builder.ops());
  result.pointers = std::move(builder).pointers();
  return result;
}

bool VpuSteps::can_fuse(const VpuKernel& kernel, const VpuStep& step) const {
  if (!fused_has(op_of(step))) {
    return false;
  }
  if (!is_load(step) && !is_store(step)) {
    return true;
  }
  const spec::VpuAccess& access = kernel.operands_[step.insn.imm].access;
  const int bytes = vpu_element_bytes(access.type);
  if (is_store(step)) {
    return access.lane == bytes &&
           static_cast<spec::VpuStoreMode>(step.insn.rs2) == spec::VpuStoreMode::kAll;
  }
  return access.lane == bytes || (access.lane == 0 && bytes == 4);
}

// True when `step` may join a run: it shares no bytes with a store of the run, nor a store with
// what the run has read, but in the same lanes.
bool VpuSteps::can_follow(const VpuKernel& kernel, Section run, const VpuStep& step) const {
  if (!is_load(step) && !is_store(step)) {
    return true;
  }
  return std::ranges::all_of(
      std::span(steps_).subspan(run.first, run.count), [&](const VpuStep& other) {
        const bool hazard = (is_store(step) && (is_load(other) || is_store(other))) ||
                            (is_load(step) && is_store(other));
        return !hazard || !overlap(step.insn.imm, other.insn.imm) ||
               same_lanes(kernel, step.insn.imm, other.insn.imm);
      });
}

// True when each lane of a block has its bytes for itself, the same by both accesses.
bool VpuSteps::same_lanes(const VpuKernel& kernel, uint32_t a, uint32_t b) const {
  const VpuKernel::Operand &x = kernel.operands_[a], &y = kernel.operands_[b];
  const int64_t bytes = vpu_element_bytes(x.access.type);
  const bool rows_apart =
      kernel.command_.flat() || rows_ == 1 || std::abs(int64_t{x.access.sub}) >= kVpuLanes * bytes;
  return rows_apart && x.base == y.base && x.access.loop == y.access.loop &&
         x.access.sub == y.access.sub && x.access.lane == y.access.lane && x.access.lane == bytes &&
         bytes == vpu_element_bytes(y.access.type);
}

// True when somebody reads register `number` behind step `end` of the section before it is written.
bool VpuSteps::seen_behind(Section section, size_t end, uint8_t number, uint32_t exposed) const {
  for (size_t i = end; i < section.first + section.count; ++i) {
    if (steps_[i].reads(number)) {
      return true;
    }
    if (steps_[i].writes && steps_[i].insn.rd == number) {
      return false;
    }
  }
  return (exposed >> number & 1) != 0;
}

}  // namespace tpu::model
