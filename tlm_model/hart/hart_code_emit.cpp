// Host code of the control hart: the frame's, then instruction by instruction.
#include "hart/hart_code_emit.hpp"

#include <cstring>
#include <type_traits>
#include <utility>

namespace tpu::model {
namespace {

// Of all harts that share it; runs that find no room are interpreted.
constexpr size_t kCodeBytes = 2 << 20;
// No run needs more, its ways out included.
constexpr size_t kMostRunBytes = 192 * kMostRunInsns;

}  // namespace

HartEmitter::HartEmitter(uint8_t threshold)
    : HartCode(threshold), CodeGenerator(kCodeBytes, Xbyak::DontSetProtectRWE) {
  emit_frame_code();
  setProtectModeRE();
}

void HartEmitter::emit_frame_code() {
  const std::pair<Xbyak::Reg64, size_t> kept[] = {{rbx, offsetof(HartFrame, regs)},
                                                  {r14, offsetof(HartFrame, data)},
                                                  {r13, offsetof(HartFrame, entries)},
                                                  {r12, offsetof(HartFrame, left)},
                                                  {r15, offsetof(HartFrame, retired)}};
  enter_ = getCurr<EnterFn>();
  push(rbp);
  mov(rbp, rdi);
  for (const auto& [reg, offset] : kept) {
    push(reg);
    mov(reg, frame(offset));
  }
  jmp(rsi);

  Xbyak::Label out;
  const auto exit = [&](Xbyak::Label& label, HartExit how) {
    L(label);
    mov(ecx, static_cast<uint32_t>(how));
    jmp(out);
  };
  exit(slow_label_, HartExit::kSlow);
  exit(budget_label_, HartExit::kBudget);
  miss_ = getCurr();
  exit(miss_label_, HartExit::kNext);
  L(out);
  mov(dword[rbp + static_cast<int>(offsetof(HartFrame, pc))], eax);
  mov(dword[rbp + static_cast<int>(offsetof(HartFrame, exit))], ecx);
  mov(frame(offsetof(HartFrame, left)), r12);
  mov(frame(offsetof(HartFrame, retired)), r15);
  for (size_t i = std::size(kept); i > 0; --i) {
    pop(kept[i - 1].first);
  }
  pop(rbp);
  ret();
}

const void* HartEmitter::run_at(const HartPlace& place, uint32_t pc,
                                std::span<const DecodedInsn> run) {
  static_assert(std::has_unique_object_representations_v<DecodedInsn>);
  static_assert(std::has_unique_object_representations_v<HartPlace>);
  std::string key(sizeof place + sizeof pc + run.size_bytes(), '\0');
  std::memcpy(key.data(), &place, sizeof place);
  std::memcpy(key.data() + sizeof place, &pc, sizeof pc);
  std::memcpy(key.data() + sizeof place + sizeof pc, run.data(), run.size_bytes());
  if (const auto found = made_.find(key); found != made_.end()) {
    return found->second;
  }
  if (getSize() + kMostRunBytes > kCodeBytes || !setProtectModeRW(false)) {
    return nullptr;
  }
  align(16);
  const void* const entry = getCurr();
  place_ = place;
  pc_ = pc;
  emit_run(run);
  setProtectModeRE();
  made_.emplace(std::move(key), entry);
  return entry;
}

void HartEmitter::emit_run(std::span<const DecodedInsn> run) {
  ways_.clear();
  cycles_ = retired_ = 0;
  uint64_t total = 0;
  for (const DecodedInsn& insn : run) {
    total += insn.cycles;
  }
  cmp(r12, static_cast<uint32_t>(total));
  jl(way(Way::Kind::kBudget, {}).from, T_NEAR);
  for (const DecodedInsn& insn : run) {
    emit(insn);
    cycles_ += insn.cycles;
    ++retired_;
    pc_ += 2U * insn.halfwords;
  }
  if (!code_ends_with(run.back().op)) {
    charge(cycles_, retired_);
    go_on_at(pc_);
  }
  for (size_t i = 0; i < ways_.size(); ++i) {  // a way may add one more
    emit_way(*ways_[i]);
  }
}

HartEmitter::Way& HartEmitter::way(Way::Kind kind, const DecodedInsn& insn) {
  ways_.push_back(std::make_unique<Way>(Way{kind, {}, {}, pc_, cycles_, retired_, insn}));
  return *ways_.back();
}

void HartEmitter::charge(uint64_t cycles, size_t retired) {
  if (retired > 0) {
    sub(r12, static_cast<uint32_t>(cycles));
    add(r15, static_cast<uint32_t>(retired));
  }
}

// To an instruction of the same memory. A jump through memory, though its target is known: code
// that comes and goes needs no patches.
void HartEmitter::go_on_at(uint32_t target) {
  mov(eax, target);
  if (const uint32_t offset = target - place_.text_base; offset < place_.coded_bytes) {
    jmp(ptr[r13 + offset / 2 * sizeof(void*)]);
  } else {
    jmp(miss_label_, T_NEAR);
  }
}

void HartEmitter::emit_way(Way& way) {
  L(way.from);
  switch (way.kind) {
    case Way::Kind::kTaken:
      charge(way.cycles + way.insn.cycles + place_.taken_cycles, way.retired + 1);
      go_on_at(way.pc + 2U * static_cast<uint32_t>(way.insn.imm));
      break;
    case Way::Kind::kText:
      emit_text_load(way);
      break;
    case Way::Kind::kSlow:
      charge(way.cycles, way.retired);
      mov(eax, way.pc);
      jmp(slow_label_, T_NEAR);
      break;
    case Way::Kind::kBudget:
      mov(eax, way.pc);
      jmp(budget_label_, T_NEAR);
      break;
  }
}

void HartEmitter::emit(const DecodedInsn& insn) {
  switch (insn.op) {
    case HartOp::kNop:
      break;
    case HartOp::kLi:
      mov(reg(insn.rd), static_cast<uint32_t>(insn.imm));
      break;
    case HartOp::kJal:
      mov(reg(insn.rd), pc_ + 2U * insn.halfwords);
      charge(cycles_ + insn.cycles, retired_ + 1);
      go_on_at(pc_ + 2U * static_cast<uint32_t>(insn.imm));
      break;
    case HartOp::kJalr:
      emit_jalr(insn);
      break;
    case HartOp::kLb:
    case HartOp::kLh:
    case HartOp::kLw:
    case HartOp::kLbu:
    case HartOp::kLhu:
      emit_load(insn);
      break;
    case HartOp::kSb:
    case HartOp::kSh:
    case HartOp::kSw:
      emit_store(insn);
      break;
    case HartOp::kBeq:
    case HartOp::kBne:
    case HartOp::kBlt:
    case HartOp::kBge:
    case HartOp::kBltu:
    case HartOp::kBgeu:
      emit_branch(insn);
      break;
    default:
      emit_computation(insn);
      break;
  }
}

void HartEmitter::emit_computation(const DecodedInsn& insn) {
  const auto imm = static_cast<uint32_t>(insn.imm);
  switch (insn.op) {
    case HartOp::kSlti:
    case HartOp::kSltiu:
    case HartOp::kSlt:
    case HartOp::kSltu:
      return emit_less(insn, insn.op == HartOp::kSlti || insn.op == HartOp::kSlt,
                       insn.op == HartOp::kSlti || insn.op == HartOp::kSltiu);
    case HartOp::kMulh:
    case HartOp::kMulhsu:
    case HartOp::kMulhu:
      return emit_product(insn);
    case HartOp::kSlli:
    case HartOp::kSrli:
    case HartOp::kSrai:
    case HartOp::kSll:
    case HartOp::kSrl:
    case HartOp::kSra:
      return emit_shift(insn);
    default:
      break;
  }
  mov(eax, reg(insn.rs1));
  switch (insn.op) {
    case HartOp::kAddi:
      if (imm != 0) {
        add(eax, imm);
      }
      break;
    case HartOp::kXori:
      xor_(eax, imm);
      break;
    case HartOp::kOri:
      or_(eax, imm);
      break;
    case HartOp::kAndi:
      and_(eax, imm);
      break;
    case HartOp::kAdd:
      add(eax, reg(insn.rs2));
      break;
    case HartOp::kSub:
      sub(eax, reg(insn.rs2));
      break;
    case HartOp::kXor:
      xor_(eax, reg(insn.rs2));
      break;
    case HartOp::kOr:
      or_(eax, reg(insn.rs2));
      break;
    case HartOp::kAnd:
      and_(eax, reg(insn.rs2));
      break;
    default:
      imul(eax, reg(insn.rs2));
      break;
  }
  mov(reg(insn.rd), eax);
}

void HartEmitter::emit_less(const DecodedInsn& insn, bool is_signed, bool immediate) {
  xor_(ecx, ecx);
  mov(eax, reg(insn.rs1));
  if (immediate) {
    cmp(eax, static_cast<uint32_t>(insn.imm));
  } else {
    cmp(eax, reg(insn.rs2));
  }
  is_signed ? setl(cl) : setb(cl);
  mov(reg(insn.rd), ecx);
}

// The high word of a product of 64 bits.
void HartEmitter::emit_product(const DecodedInsn& insn) {
  insn.op == HartOp::kMulhu ? mov(eax, reg(insn.rs1)) : movsxd(rax, reg(insn.rs1));
  insn.op == HartOp::kMulh ? movsxd(rcx, reg(insn.rs2)) : mov(ecx, reg(insn.rs2));
  imul(rax, rcx);
  shr(rax, 32);
  mov(reg(insn.rd), eax);
}

// Both architectures look at the low five bits of the amount.
void HartEmitter::emit_shift(const DecodedInsn& insn) {
  mov(eax, reg(insn.rs1));
  const auto imm = static_cast<uint8_t>(insn.imm);
  switch (insn.op) {
    case HartOp::kSlli:
      shl(eax, imm);
      break;
    case HartOp::kSrli:
      shr(eax, imm);
      break;
    case HartOp::kSrai:
      sar(eax, imm);
      break;
    default:
      mov(ecx, reg(insn.rs2));
      insn.op == HartOp::kSll   ? shl(eax, cl)
      : insn.op == HartOp::kSrl ? shr(eax, cl)
                                : sar(eax, cl);
      break;
  }
  mov(reg(insn.rd), eax);
}

namespace {

uint32_t access_bytes(HartOp op) {
  switch (op) {
    case HartOp::kLw:
    case HartOp::kSw:
      return 4;
    case HartOp::kLh:
    case HartOp::kLhu:
    case HartOp::kSh:
      return 2;
    default:
      return 1;
  }
}

}  // namespace

// rs1 + imm in eax.
void HartEmitter::emit_address(const DecodedInsn& insn) {
  mov(eax, reg(insn.rs1));
  if (insn.imm != 0) {
    add(eax, static_cast<uint32_t>(insn.imm));
  }
}

// The address in eax, its offset in rcx.
void HartEmitter::check_place(uint32_t base, uint32_t bytes, uint32_t size, Xbyak::Label& outside) {
  mov(ecx, eax);
  sub(ecx, base);
  cmp(ecx, bytes);
  jae(outside, T_NEAR);
  if (size > 1) {
    test(al, static_cast<uint8_t>(size - 1));
    jnz(outside, T_NEAR);
  }
}

void HartEmitter::load_bytes(HartOp op, const Xbyak::Reg64& memory) {
  switch (op) {
    case HartOp::kLb:
      movsx(edx, byte[memory + rcx]);
      break;
    case HartOp::kLbu:
      movzx(edx, byte[memory + rcx]);
      break;
    case HartOp::kLh:
      movsx(edx, word[memory + rcx]);
      break;
    case HartOp::kLhu:
      movzx(edx, word[memory + rcx]);
      break;
    default:
      mov(edx, dword[memory + rcx]);
      break;
  }
}

void HartEmitter::emit_load(const DecodedInsn& insn) {
  emit_address(insn);
  Way& other = way(Way::Kind::kText, insn);
  check_place(place_.data_base, place_.data_bytes, access_bytes(insn.op), other.from);
  load_bytes(insn.op, r14);
  L(other.back);
  mov(reg(insn.rd), edx);
}

// A constant beside the instructions, or what the interpreter does.
void HartEmitter::emit_text_load(Way& from) {
  ways_.push_back(std::make_unique<Way>(
      Way{Way::Kind::kSlow, {}, {}, from.pc, from.cycles, from.retired, from.insn}));
  check_place(place_.text_base, place_.text_bytes, access_bytes(from.insn.op), ways_.back()->from);
  mov(rsi, frame(offsetof(HartFrame, text)));
  load_bytes(from.insn.op, rsi);
  jmp(from.back, T_NEAR);
}

void HartEmitter::emit_store(const DecodedInsn& insn) {
  emit_address(insn);
  check_place(place_.data_base, place_.data_bytes, access_bytes(insn.op),
              way(Way::Kind::kSlow, insn).from);
  mov(edx, reg(insn.rs2));
  switch (access_bytes(insn.op)) {
    case 1:
      mov(byte[r14 + rcx], dl);
      break;
    case 2:
      mov(word[r14 + rcx], dx);
      break;
    default:
      mov(dword[r14 + rcx], edx);
      break;
  }
}

void HartEmitter::emit_branch(const DecodedInsn& insn) {
  Xbyak::Label& taken = way(Way::Kind::kTaken, insn).from;
  mov(eax, reg(insn.rs1));
  cmp(eax, reg(insn.rs2));
  switch (insn.op) {
    case HartOp::kBeq:
      je(taken, T_NEAR);
      break;
    case HartOp::kBne:
      jne(taken, T_NEAR);
      break;
    case HartOp::kBlt:
      jl(taken, T_NEAR);
      break;
    case HartOp::kBge:
      jge(taken, T_NEAR);
      break;
    case HartOp::kBltu:
      jb(taken, T_NEAR);
      break;
    default:
      jae(taken, T_NEAR);
      break;
  }
}

void HartEmitter::emit_jalr(const DecodedInsn& insn) {
  emit_address(insn);
  and_(eax, ~1U);
  mov(reg(insn.rd), pc_ + 2U * insn.halfwords);
  charge(cycles_ + insn.cycles, retired_ + 1);
  mov(ecx, eax);
  sub(ecx, place_.text_base);
  cmp(ecx, place_.coded_bytes);
  jae(miss_label_, T_NEAR);
  static_assert(sizeof(void*) == 8);
  jmp(ptr[r13 + rcx * 4]);  // an entry a halfword
}

std::unique_ptr<HartCode> HartCode::make(uint8_t threshold) {
  try {
    return std::make_unique<HartEmitter>(threshold);
  } catch (const Xbyak::Error&) {
    return nullptr;
  }
}

}  // namespace tpu::model
