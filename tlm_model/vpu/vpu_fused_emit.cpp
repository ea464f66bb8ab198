// Emission of fused code. Registers of the host: rdi the arguments, rsi the constants of the run,
// rdx those of the operations, rcx the first lane of the vector, others pointers.
#include "vpu/vpu_fused_emit.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "command/vpu_footprint.hpp"

namespace tpu::model {
namespace {

using spec::Elem;
using spec::VpuOp;
using Xbyak::Operand;

constexpr int kScratch = 3;  // vector registers 0..2 hold no values
constexpr uint32_t kNan = 0x7fc00000u;
constexpr uint32_t kSignBit = 0x80000000u;
constexpr uint32_t kFloatOne = 0x3f800000u;
constexpr uint8_t kUnordered = 3;  // predicate of vcmpps

// Constants of the operations themselves, numbered behind those of a run.
constexpr int kOwnConstants = 0x4000;
constexpr std::array<uint32_t, 11> kOwnWords = {kNan,  kSignBit,    0x7fffffffu, kFloatOne,
                                                1,     0x7fff,      0xffff0000u, 0xffffu,
                                                0xffu, 0xffffffffu, 0x47800000u /* 65536.0f */};
struct OwnTable {
  alignas(64) std::array<std::array<uint32_t, 16>, kOwnWords.size()> rows;
};
const OwnTable& own_table() {
  static const OwnTable table = [] {
    OwnTable made;
    for (size_t i = 0; i < kOwnWords.size(); ++i) {
      made.rows[i].fill(kOwnWords[i]);
    }
    return made;
  }();
  return table;
}

// r8..r11, rbx, rbp, r12..r15 by the first pointers; others are loaded where they are used.
constexpr std::array<int, 10> kPointerRegisters = {
    Operand::R8,  Operand::R9,  Operand::R10, Operand::R11, Operand::RBX,
    Operand::RBP, Operand::R12, Operand::R13, Operand::R14, Operand::R15};

bool is_memory(const FusedOp& op) {
  return static_cast<VpuOp>(op.op) == VpuOp::kLoad || static_cast<VpuOp>(op.op) == VpuOp::kStore;
}

bool makes_value(const FusedOp& op) { return static_cast<VpuOp>(op.op) != VpuOp::kStore; }

// Operations that do the same with every NaN, and whose result is canonical or a NaN of their own.
bool takes_any_nan(const FusedOp& op) {
  switch (static_cast<VpuOp>(op.op)) {
    case VpuOp::kAddF:
    case VpuOp::kSubF:
    case VpuOp::kMulF:
    case VpuOp::kDivF:
    case VpuOp::kFmaF:
    case VpuOp::kSqrtF:
    case VpuOp::kRsqrtF:
    case VpuOp::kMinF:
    case VpuOp::kMaxF:
    case VpuOp::kFloorF:
    case VpuOp::kCeilF:
    case VpuOp::kRoundRneF:
    case VpuOp::kCmpF:
      return true;
    default:
      return false;
  }
}

bool rounds_to_bf16(const FusedOp& op) {
  const auto code = static_cast<VpuOp>(op.op);
  return code == VpuOp::kRbf16 ||
         (code == VpuOp::kStore && static_cast<Elem>(op.detail) == Elem::kBf16);
}

// Operations that are emitted with NaNs as the host makes them.
bool may_be_raw_nan(const FusedOp& op) {
  return takes_any_nan(op) && static_cast<VpuOp>(op.op) != VpuOp::kCmpF;
}

// Number of the first source whose value the result is, or is but for its sign; 3: of none.
size_t first_passed_on(const FusedOp& op) {
  switch (static_cast<VpuOp>(op.op)) {
    case VpuOp::kAbsF:
    case VpuOp::kNegF:
      return 0;
    case VpuOp::kSelect:
      return 1;
    default:
      return 3;
  }
}

// Predicates of vcmpps: as C compares, quiet.
constexpr std::array<uint8_t, 6> kFloatPredicates = {0x00, 0x04, 0x11, 0x12, 0x1e, 0x1d};
// Predicates of vpcmpd and vpcmpud.
constexpr std::array<uint8_t, 6> kIntegerPredicates = {0, 4, 1, 2, 6, 5};

size_t code_bytes(size_t ops) { return (1024 + ops * 192 + 4095) / 4096 * 4096; }

}  // namespace

FusedEmitter::FusedEmitter(FusedIsa isa, std::span<const FusedOp> ops)
    : CodeGenerator(code_bytes(ops.size()), Xbyak::DontSetProtectRWE),
      isa_(isa),
      ops_(ops),
      values_(ops.size()) {}

bool FusedEmitter::emit() {
  find_uses();
  find_facts();
  find_raw_nans();
  if (!assign_registers()) {
    return false;
  }
  emit_function();  // counts the uses of constants
  assign_constants();
  reset();
  emit_function();
  return setProtectModeRE(false);
}

void FusedEmitter::find_uses() {
  for (size_t i = 0; i < ops_.size(); ++i) {
    for (const uint16_t source : ops_[i].source) {
      if ((source & kFusedConstant) == 0) {
        values_[source].last_use = static_cast<int>(i);
      }
    }
  }
}

void FusedEmitter::find_raw_nans() {
  for (size_t i = ops_.size(); i-- > 0;) {
    const FusedOp& op = ops_[i];
    for (size_t k = 0; k < op.source.size(); ++k) {
      if ((op.source[k] & kFusedConstant) == 0) {
        Value& value = values_[op.source[k]];
        const bool passed_on = k >= first_passed_on(op) && values_[i].raw_nan;
        const bool rounded = rounds_to_bf16(op) && value.facts.canonical && !value.facts.bf16;
        value.raw_nan &= takes_any_nan(op) || passed_on || rounded;
      }
    }
  }
}

FusedEmitter::Facts FusedEmitter::facts_of(uint16_t source) const {
  return (source & kFusedConstant) == 0 ? values_[source].facts : Facts{};
}

void FusedEmitter::find_facts() {
  for (size_t i = 0; i < ops_.size(); ++i) {
    const FusedOp& op = ops_[i];
    Facts& facts = values_[i].facts;
    switch (static_cast<VpuOp>(op.op)) {
      case VpuOp::kLoad:
        facts.bf16 = static_cast<Elem>(op.detail) == Elem::kBf16;
        break;
      case VpuOp::kSelect: {
        const Facts yes = facts_of(op.source[1]), no = facts_of(op.source[2]);
        facts = {.flushed = yes.flushed && no.flushed,
                 .canonical = yes.canonical && no.canonical,
                 .bf16 = yes.bf16 && no.bf16};
        break;
      }
      case VpuOp::kAbsF:
      case VpuOp::kNegF:
        facts = facts_of(op.source[0]);
        facts.canonical = false;
        break;
      case VpuOp::kI2f:
      case VpuOp::kU2f:
        facts.flushed = facts.canonical = true;
        break;
      case VpuOp::kRbf16:
        facts = facts_of(op.source[0]);
        facts.bf16 = true;
        break;
      case VpuOp::kCmpF:
        break;
      default:
        facts.flushed = facts.canonical = takes_any_nan(op);
    }
  }
}

// A result never takes the register of a source: operations of several instructions read sources
// after they have begun to write.
bool FusedEmitter::assign_registers() {
  std::vector<bool> taken(wide() ? 32 : 16, false);
  std::fill_n(taken.begin(), kScratch, true);
  registers_used_ = kScratch;
  for (size_t i = 0; i < ops_.size(); ++i) {
    if (makes_value(ops_[i])) {
      const auto free = std::ranges::find(taken, false);
      if (free == taken.end()) {
        return false;
      }
      *free = true;
      values_[i].reg = static_cast<int>(free - taken.begin());
      registers_used_ = std::max(registers_used_, values_[i].reg + 1);
      value_registers_[static_cast<int>(i)] = vector(values_[i].reg);
    }
    for (size_t k = 0; k <= i; ++k) {
      const bool dies =
          values_[k].last_use == static_cast<int>(i) || (k == i && values_[k].last_use < 0);
      if (dies && makes_value(ops_[k])) {
        taken[static_cast<size_t>(values_[k].reg)] = false;
      }
    }
  }
  return true;
}

// Constants that are used most get the registers that no value needs.
void FusedEmitter::assign_constants() {
  std::vector<std::pair<int, int>> by_use;
  for (const auto& [number, uses] : constant_uses_) {
    by_use.emplace_back(-uses, number);
  }
  std::ranges::sort(by_use);
  int next = registers_used_;
  for (const auto& [uses, number] : by_use) {
    if (next < (wide() ? 32 : 16)) {
      constant_registers_[number] = vector(next++);
    }
  }
}

FusedEmitter::Vector FusedEmitter::vector(int number) const {
  return wide() ? Vector(Xbyak::Zmm(number)) : Vector(Xbyak::Ymm(number));
}

FusedEmitter::Vector FusedEmitter::half_vector(int number) const {
  return wide() ? Vector(Xbyak::Ymm(number)) : Vector(number);
}

const Operand& FusedEmitter::constant(int number) {
  ++constant_uses_[number];
  if (const auto found = constant_registers_.find(number); found != constant_registers_.end()) {
    return found->second;
  }
  return constant_places_.try_emplace(number, constant_place(number)).first->second;
}

// Those of the run lie at rsi, those that all runs share at rdx.
Xbyak::Address FusedEmitter::constant_place(int number) const {
  const bool own = number >= kOwnConstants;
  const size_t offset = size_t{64} * static_cast<size_t>(own ? number - kOwnConstants : number);
  return own ? ptr[rdx + offset] : ptr[rsi + offset];
}

const Operand& FusedEmitter::constant_word(uint32_t value) {
  const auto index = std::ranges::find(kOwnWords, value) - kOwnWords.begin();
  return constant(kOwnConstants + static_cast<int>(index));
}

const Operand& FusedEmitter::any(uint16_t source) {
  return (source & kFusedConstant) != 0 ? constant(source & ~kFusedConstant)
                                        : value_registers_.at(source);
}

FusedEmitter::Vector FusedEmitter::reg(uint16_t source, int scratch) {
  const Operand& place = any(source);
  if (!place.isMEM()) {
    return static_cast<const Vector&>(place);
  }
  vmovaps(vector(scratch), place);
  return vector(scratch);
}

FusedEmitter::Vector FusedEmitter::flushed_source(uint16_t source, int scratch) {
  if (facts_of(source).flushed) {
    return reg(source, scratch);
  }
  vmulps(vector(scratch), reg(source, scratch), constant_word(kFloatOne));
  return vector(scratch);
}

Xbyak::Address FusedEmitter::memory(const FusedOp& op, size_t ahead) {
  Xbyak::Reg64 base = rax;
  if (op.pointer < kPointerRegisters.size()) {
    base = Xbyak::Reg64(kPointerRegisters[op.pointer]);
  } else {
    mov(rax, ptr[rdi + offsetof(FusedArgs, pointers) + 8 * size_t{op.pointer}]);
  }
  if (op.broadcast != 0) {
    return ptr[base];
  }
  switch (spec::vpu_element_bytes(op.detail)) {
    case 1:
      return ptr[base + rcx + ahead];
    case 2:
      return ptr[base + rcx * 2 + ahead];
    default:
      return ptr[base + rcx * 4 + ahead];
  }
}

void FusedEmitter::emit_function() {
  const std::array<Xbyak::Reg64, 6> saved = {rbx, rbp, r12, r13, r14, r15};
  for (const Xbyak::Reg64& r : saved) {
    push(r);
  }
  emit_prologue();
  Xbyak::Label next_row, next_vector;
  L(next_row);
  xor_(ecx, ecx);
  align(32);
  L(next_vector);
  for (size_t i = 0; i < ops_.size(); ++i) {
    emit_op(i);
  }
  add(rcx, wide() ? 16 : 8);
  cmp(rcx, ptr[rdi + offsetof(FusedArgs, lanes)]);
  jl(next_vector, T_NEAR);
  emit_next_row();
  dec(qword[rdi + offsetof(FusedArgs, rows)]);
  jnz(next_row, T_NEAR);
  vzeroupper();
  for (auto r = saved.rbegin(); r != saved.rend(); ++r) {
    pop(*r);
  }
  ret();
}

size_t FusedEmitter::pointer_count() const {
  size_t count = 0;
  for (const FusedOp& op : ops_) {
    count = is_memory(op) ? std::max(count, size_t{op.pointer} + 1) : count;
  }
  return count;
}

// Pointers and constants to registers.
void FusedEmitter::emit_prologue() {
  for (size_t i = 0; i < std::min(pointer_count(), kPointerRegisters.size()); ++i) {
    mov(Xbyak::Reg64(kPointerRegisters[i]), ptr[rdi + offsetof(FusedArgs, pointers) + 8 * i]);
  }
  mov(rsi, ptr[rdi + offsetof(FusedArgs, constants)]);
  mov(rdx, reinterpret_cast<uint64_t>(&own_table()));
  for (const auto& [number, place] : constant_registers_) {
    vmovaps(place, constant_place(number));
  }
}

void FusedEmitter::emit_next_row() {
  for (size_t i = 0; i < pointer_count(); ++i) {
    const size_t pitch = offsetof(FusedArgs, pitches) + 8 * i;
    if (i < kPointerRegisters.size()) {
      add(Xbyak::Reg64(kPointerRegisters[i]), ptr[rdi + pitch]);
    } else {
      mov(rax, ptr[rdi + pitch]);
      add(ptr[rdi + offsetof(FusedArgs, pointers) + 8 * i], rax);
    }
  }
}

void FusedEmitter::emit_op(size_t index) {
  const FusedOp& op = ops_[index];
  switch (static_cast<VpuOp>(op.op)) {
    case VpuOp::kLoad:
      emit_load(op, vector(values_[index].reg));
      break;
    case VpuOp::kStore:
      emit_store(op);
      return;
    case VpuOp::kImm:
      vmovaps(vector(values_[index].reg), any(op.source[0]));
      return;
    default: {
      const Vector d = vector(values_[index].reg);
      if (!emit_float(op, d) && !emit_integer(op, d)) {
        return;
      }
    }
  }
  if (may_be_raw_nan(op) && !values_[index].raw_nan) {
    const Vector d = vector(values_[index].reg);
    nan_where(d, d, d);
  }
}

// d = canonical NaN where a or b is a NaN.
void FusedEmitter::nan_where(Vector d, Vector a, const Operand& b) {
  const Operand& nan = constant_word(kNan);
  if (wide()) {
    vcmpps(k1, a, b, kUnordered);
    vmovaps(d | k1, nan);
  } else {
    vcmpps(vector(2), a, b, kUnordered);
    vblendvps(d, d, nan, vector(2));
  }
}

bool FusedEmitter::emit_float(const FusedOp& op, Vector d) {
  const auto& [a, b, c] = op.source;
  switch (static_cast<VpuOp>(op.op)) {
    case VpuOp::kAddF:
      vaddps(d, reg(a, 0), any(b));
      return true;
    case VpuOp::kSubF:
      vsubps(d, reg(a, 0), any(b));
      return true;
    case VpuOp::kMulF:
      vmulps(d, reg(a, 0), any(b));
      return true;
    case VpuOp::kDivF:
      vdivps(d, reg(a, 0), any(b));
      return true;
    case VpuOp::kFmaF:
      vmovaps(d, any(c));
      vfmadd231ps(d, reg(a, 0), any(b));
      return true;
    case VpuOp::kSqrtF:
      vsqrtps(d, any(a));
      return true;
    case VpuOp::kRsqrtF:
      vsqrtps(d, any(a));
      vmovaps(vector(0), constant_word(kFloatOne));
      vdivps(d, vector(0), d);
      return true;
    case VpuOp::kMinF:
    case VpuOp::kMaxF:
      emit_min_max(op, d, static_cast<VpuOp>(op.op) == VpuOp::kMaxF);
      return true;
    case VpuOp::kAbsF:
      vandps(d, reg(a, 0), constant_word(~kSignBit));
      return true;
    case VpuOp::kNegF:
      vxorps(d, reg(a, 0), constant_word(kSignBit));
      return true;
    case VpuOp::kFloorF:
      emit_round(op, d, 1);
      return true;
    case VpuOp::kCeilF:
      emit_round(op, d, 2);
      return true;
    case VpuOp::kRoundRneF:
      emit_round(op, d, 0);
      return true;
    case VpuOp::kRbf16:
      vandps(d, emit_rounded_bf16(a), constant_word(0xffff0000u));
      return true;
    case VpuOp::kCmpF:
      emit_compare(op, d);
      return true;
    default:
      return false;
  }
}

// min and max of the instruction set take their second source when one is a NaN or both are zeros;
// the semantics require a NaN, and -0 < +0.
void FusedEmitter::emit_min_max(const FusedOp& op, Vector d, bool is_max) {
  const auto& [a, b, c] = op.source;
  const auto limit = static_cast<FusedLimit>(op.detail);
  if (limit == FusedLimit::kZero) {  // adding +0 makes +0 of -0 and flushes
    const Vector zero = reg(b, 0);
    vmaxps(d, zero, any(a));
    vaddps(d, d, zero);
    return;
  }
  const Vector x = flushed_source(a, 0);
  if (limit == FusedLimit::kPlain) {
    is_max ? vmaxps(d, reg(b, 1), x) : vminps(d, reg(b, 1), x);
    return;
  }
  const Vector y = flushed_source(b, 1);
  if (is_max) {
    vmaxps(d, x, y);
    vmaxps(vector(2), y, x);
    vandps(d, d, vector(2));
    nan_where(d, x, y);
  } else {  // of a NaN and a number the bits of both: a NaN
    vminps(d, x, y);
    vminps(vector(2), y, x);
    vorps(d, d, vector(2));
  }
}

void FusedEmitter::emit_round(const FusedOp& op, Vector d, uint8_t mode) {
  constexpr uint8_t kQuiet = 8;
  const Vector x = flushed_source(op.source[0], 0);
  if (wide()) {
    vrndscaleps(d, x, mode | kQuiet);
  } else {
    vroundps(d, x, mode | kQuiet);
  }
}

// The source rounded to bf16 in the upper half of scratch register 1, NaNs and subnormals of bf16
// too; the lower half is noise.
FusedEmitter::Vector FusedEmitter::emit_bf16(uint16_t source) {
  const Vector x = flushed_source(source, 0), r = vector(1);
  vpsrld(r, x, 16);
  vandps(r, r, constant_word(1));
  vpaddd(r, r, constant_word(0x7fff));
  vpaddd(r, r, x);
  nan_where(r, x, x);
  return r;
}

// bf16 of the source in the upper half of a register: words whose lower half is zero as they are,
// others rounded.
FusedEmitter::Vector FusedEmitter::emit_rounded_bf16(uint16_t source) {
  const Facts facts = facts_of(source);
  if (facts.bf16) {
    return reg(source, 0);
  }
  const Vector r = emit_bf16(source);
  if (facts.canonical) {  // rounding leaves such words as they are, too
    return r;
  }
  const Vector x = reg(source, 0);
  if (wide()) {
    vptestnmd(k1, x, constant_word(0xffffu));
    vmovaps(r | k1, x);
  } else {
    vandps(vector(2), x, constant_word(0xffffu));
    vxorps(vector(0), vector(0), vector(0));
    vpcmpeqd(vector(2), vector(2), vector(0));
    vblendvps(r, r, any(source), vector(2));
  }
  return r;
}

void FusedEmitter::emit_compare(const FusedOp& op, Vector d) {
  const Vector a = reg(op.source[0], 0);
  const uint8_t predicate = kFloatPredicates[op.detail];
  const Operand& b = any(op.source[1]);
  if (wide()) {
    vcmpps(k1, a, b, predicate);
    vmovaps(d | k1 | T_z, constant_word(1));
  } else {
    vcmpps(d, a, b, predicate);
    vandps(d, d, constant_word(1));
  }
}

void FusedEmitter::emit_compare_integers(const FusedOp& op, Vector d) {
  const bool is_signed = static_cast<VpuOp>(op.op) == VpuOp::kCmpS;
  const Vector a = reg(op.source[0], 0), b = reg(op.source[1], 1);
  if (wide()) {
    const uint8_t predicate = kIntegerPredicates[op.detail];
    is_signed ? vpcmpd(k1, a, b, predicate) : vpcmpud(k1, a, b, predicate);
    vmovaps(d | k1 | T_z, constant_word(1));
    return;
  }
  const auto order = static_cast<spec::VpuCompare>(op.detail);
  bool inverse = order == spec::VpuCompare::kNe;
  if (order == spec::VpuCompare::kEq || order == spec::VpuCompare::kNe) {
    vpcmpeqd(d, a, b);
  } else {
    const bool swap = order == spec::VpuCompare::kLt || order == spec::VpuCompare::kGe;
    const Vector high = swap ? b : a, low = swap ? a : b;
    inverse = order == spec::VpuCompare::kLe || order == spec::VpuCompare::kGe;
    if (is_signed) {
      vpcmpgtd(d, high, low);
    } else {  // high > low unless their minimum is high
      vpminud(d, high, low);
      vpcmpeqd(d, d, high);
      inverse = !inverse;
    }
  }
  inverse ? vandnps(d, d, constant_word(1)) : vandps(d, d, constant_word(1));
}

void FusedEmitter::emit_select(const FusedOp& op, Vector d) {
  const auto& [mask, yes, no] = op.source;
  const Vector m = reg(mask, 0);
  if (wide()) {
    vptestmd(k1, m, m);
    vblendmps(d | k1, reg(no, 1), any(yes));
  } else {
    vxorps(vector(2), vector(2), vector(2));
    vpcmpeqd(vector(2), m, vector(2));
    vblendvps(d, reg(yes, 1), any(no), vector(2));
  }
}

bool FusedEmitter::emit_integer(const FusedOp& op, Vector d) {
  const auto& [a, b, c] = op.source;
  switch (static_cast<VpuOp>(op.op)) {
    case VpuOp::kCmpS:
    case VpuOp::kCmpU:
      emit_compare_integers(op, d);
      return true;
    case VpuOp::kSelect:
      emit_select(op, d);
      return true;
    case VpuOp::kAddI:
      vpaddd(d, reg(a, 0), any(b));
      return true;
    case VpuOp::kSubI:
      vpsubd(d, reg(a, 0), any(b));
      return true;
    case VpuOp::kMulI:
      vpmulld(d, reg(a, 0), any(b));
      return true;
    case VpuOp::kAnd:
      vandps(d, reg(a, 0), any(b));
      return true;
    case VpuOp::kOr:
      vorps(d, reg(a, 0), any(b));
      return true;
    case VpuOp::kXor:
      vxorps(d, reg(a, 0), any(b));
      return true;
    case VpuOp::kShl:
      vpsllvd(d, reg(a, 0), any(b));
      return true;
    case VpuOp::kShr:
      vpsrlvd(d, reg(a, 0), any(b));
      return true;
    case VpuOp::kSar:
      vpsravd(d, reg(a, 0), any(b));
      return true;
    case VpuOp::kMinS:
      vpminsd(d, reg(a, 0), any(b));
      return true;
    case VpuOp::kMaxS:
      vpmaxsd(d, reg(a, 0), any(b));
      return true;
    case VpuOp::kMinU:
      vpminud(d, reg(a, 0), any(b));
      return true;
    case VpuOp::kMaxU:
      vpmaxud(d, reg(a, 0), any(b));
      return true;
    case VpuOp::kNot:
      vxorps(d, reg(a, 0), constant_word(0xffffffffu));
      return true;
    case VpuOp::kNegI:
      vxorps(vector(1), vector(1), vector(1));
      vpsubd(d, vector(1), any(a));
      return true;
    case VpuOp::kAbsI:
      vpabsd(d, any(a));
      return true;
    case VpuOp::kI2f:
      vcvtdq2ps(d, any(a));
      return true;
    case VpuOp::kU2f:  // both halves are exact, one rounding
      vpsrld(vector(1), reg(a, 0), 16);
      vcvtdq2ps(vector(1), vector(1));
      vmulps(vector(1), vector(1), constant_word(0x47800000u));
      vandps(d, reg(a, 0), constant_word(0xffff));
      vcvtdq2ps(d, d);
      vaddps(d, d, vector(1));
      return true;
    default:
      return false;
  }
}

void FusedEmitter::emit_load(const FusedOp& op, Vector d) {
  if (op.broadcast == 0) {
    const int block = spec::kVpuBlock * spec::vpu_element_bytes(op.detail);
    prefetcht0(memory(op, static_cast<size_t>(block)));  // as a rule the next one
  }
  const Xbyak::Address from = memory(op);
  switch (static_cast<Elem>(op.detail)) {
    case Elem::kBf16:
      vpmovzxwd(d, from);
      vpslld(d, d, 16);
      break;
    case Elem::kUi16:
      vpmovzxwd(d, from);
      break;
    case Elem::kI16:
      vpmovsxwd(d, from);
      break;
    case Elem::kUi8:
    case Elem::kI1:
      vpmovzxbd(d, from);
      break;
    case Elem::kI8:
      vpmovsxbd(d, from);
      break;
    default:
      op.broadcast != 0 ? vbroadcastss(d, from) : vmovups(d, from);
  }
}

void FusedEmitter::emit_store(const FusedOp& op) {
  const uint16_t value = op.source[0];
  switch (static_cast<Elem>(op.detail)) {
    case Elem::kBf16:
      vpsrld(vector(1), emit_rounded_bf16(value), 16);
      store_halves(memory(op), vector(1));
      break;
    case Elem::kUi16:
    case Elem::kI16:
      vandps(vector(1), reg(value, 0), constant_word(0xffff));
      store_halves(memory(op), vector(1));
      break;
    case Elem::kUi8:
    case Elem::kI8:
      vandps(vector(1), reg(value, 0), constant_word(0xff));
      store_bytes(memory(op), vector(1));
      break;
    case Elem::kI1:
      vmovaps(vector(1), any(value));
      vpminud(vector(1), vector(1), constant_word(1));
      store_bytes(memory(op), vector(1));
      break;
    default: {
      const Vector from = reg(value, 0);
      vmovups(memory(op), from);
    }
  }
}

// Words below 2^16 as halves.
void FusedEmitter::store_halves(const Xbyak::Address& to, Vector from) {
  if (wide()) {
    vpmovdw(to, Xbyak::Zmm(from.getIdx()));
  } else {
    const Xbyak::Ymm words(from.getIdx());
    vpackusdw(words, words, words);
    vpermq(words, words, 0x08);
    vmovdqu(to, half_vector(from.getIdx()));
  }
}

// Words below 2^8 as bytes.
void FusedEmitter::store_bytes(const Xbyak::Address& to, Vector from) {
  if (wide()) {
    vpmovdb(to, Xbyak::Zmm(from.getIdx()));
  } else {
    const Xbyak::Ymm words(from.getIdx());
    const Xbyak::Xmm low(from.getIdx());
    vpackusdw(words, words, words);
    vpermq(words, words, 0x08);
    vpackuswb(low, low, low);
    vmovq(to, low);
  }
}

}  // namespace tpu::model
