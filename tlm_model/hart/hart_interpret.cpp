// The interpreter loop of the control hart: direct-threaded dispatch (computed goto) over an array
// of decoded instructions, one entry for each halfword of executable memory, filled at first use.
// No state is written before all checks of an instruction have passed, so traps are precise.
// The one long function is the loop; each operation is one to four lines of it.
#include <cstring>
#include <limits>

#include "hart/hart.hpp"
#include "hart/hart_csr.hpp"

namespace tpu::model {
namespace {

constexpr int32_t to_signed(uint32_t value) { return static_cast<int32_t>(value); }
constexpr uint32_t to_unsigned(int64_t value) { return static_cast<uint32_t>(value); }
constexpr uint32_t high_word(int64_t product) {
  return static_cast<uint32_t>(static_cast<uint64_t>(product) >> 32);
}

constexpr uint32_t divide_signed(uint32_t a, uint32_t b) {
  if (b == 0) {
    return UINT32_MAX;
  }
  return to_unsigned(int64_t{to_signed(a)} / to_signed(b));
}
constexpr uint32_t remainder_signed(uint32_t a, uint32_t b) {
  if (b == 0) {
    return a;
  }
  return to_unsigned(int64_t{to_signed(a)} % to_signed(b));
}

}  // namespace

// Retires the instruction at `ip` and goes on with the next one.
#define TPU_NEXT()                               \
  do {                                           \
    left -= ip->cycles;                          \
    ++retired;                                   \
    ip += ip->halfwords;                         \
    if (left <= 0) {                             \
      goto stop_budget;                          \
    }                                            \
    goto* kLabels[static_cast<uint8_t>(ip->op)]; \
  } while (false)

// Retires a jump or taken branch inside the region.
#define TPU_TAKEN(extra_cycles)          \
  do {                                   \
    left -= ip->cycles + (extra_cycles); \
    ++retired;                           \
    ip += ip->imm;                       \
    if (left <= 0) {                     \
      goto stop_budget;                  \
    }                                    \
    goto enter;                          \
  } while (false)

#define TPU_REG_OP(name, expression) \
  label_##name : {                   \
    const uint32_t a = x[ip->rs1];   \
    const uint32_t b = x[ip->rs2];   \
    x[ip->rd] = (expression);        \
    TPU_NEXT();                      \
  }

#define TPU_IMM_OP(name, expression)                   \
  label_##name : {                                     \
    const uint32_t a = x[ip->rs1];                     \
    const uint32_t b = static_cast<uint32_t>(ip->imm); \
    x[ip->rd] = (expression);                          \
    TPU_NEXT();                                        \
  }

#define TPU_BRANCH(name, condition) \
  label_##name : {                  \
    const uint32_t a = x[ip->rs1];  \
    const uint32_t b = x[ip->rs2];  \
    if (condition) {                \
      TPU_TAKEN(taken_cycles);      \
    }                               \
    TPU_NEXT();                     \
  }

#define TPU_LOAD(name, type)                                             \
  label_##name : {                                                       \
    const uint32_t addr = x[ip->rs1] + static_cast<uint32_t>(ip->imm);   \
    const uint32_t offset = addr - data.base;                            \
    if (offset >= data.size_bytes || (addr & (sizeof(type) - 1)) != 0) { \
      access_addr = addr;                                                \
      access_size = sizeof(type);                                        \
      goto slow_load;                                                    \
    }                                                                    \
    type value;                                                          \
    std::memcpy(&value, data.data + offset, sizeof value);               \
    x[ip->rd] = static_cast<uint32_t>(value);                            \
    TPU_NEXT();                                                          \
  }

#define TPU_STORE(name, type)                                            \
  label_##name : {                                                       \
    const uint32_t addr = x[ip->rs1] + static_cast<uint32_t>(ip->imm);   \
    const uint32_t offset = addr - data.base;                            \
    if (offset >= data.size_bytes || (addr & (sizeof(type) - 1)) != 0) { \
      access_addr = addr;                                                \
      access_size = sizeof(type);                                        \
      goto slow_store;                                                   \
    }                                                                    \
    const type value = static_cast<type>(x[ip->rs2]);                    \
    std::memcpy(data.data + offset, &value, sizeof value);               \
    TPU_NEXT();                                                          \
  }

HartRun Hart::interpret(uint64_t budget_cycles) {
  static const void* const kLabels[] = {
#define TPU_HART_LABEL(name) &&label_##name,
      TPU_HART_OPS(TPU_HART_LABEL)
#undef TPU_HART_LABEL
  };
  const int64_t budget =
      budget_cycles > uint64_t{INT64_MAX} ? INT64_MAX : static_cast<int64_t>(budget_cycles);
  const HartMemory data = watches_.empty() ? map_.data() : HartMemory{};
  bool coded = map_.code() != nullptr && watches_.empty();  // until the budget is almost used up
  const int64_t taken_cycles = timing_.taken_branch_cycles;
  uint32_t* const x = regs_.data();
  int64_t left = budget;
  uint64_t retired = 0;
  Region* region = nullptr;
  DecodedInsn* ip = nullptr;
  DecodedInsn outside;  // stands for an address that cannot be executed
  uint32_t code_base = 0;
  uint32_t access_addr = 0;
  uint32_t access_size = 0;
  uint32_t trap_cause = 0;
  uint32_t trap_value = 0;
  HartStop reason = HartStop::kBudget;

  // `pc_` is up to date only outside the threaded code; inside, `ip` is the program counter.
  const auto sync_pc = [&] {
    if (ip != &outside) {
      pc_ = code_base + 2U * static_cast<uint32_t>(ip - region->code.data());
    }
  };

fetch:  // go on at pc_
  if (left <= 0) {
    goto stop;
  }
  region = map_.find(pc_, 2);
  if (region == nullptr || region->code.empty()) {
    outside.op = HartOp::kFetchFault;
    ip = &outside;
  } else {
    code_base = region->memory.base;
    ip = &region->code[(pc_ - code_base) / 2];
    goto enter;
  }
  goto* kLabels[static_cast<uint8_t>(ip->op)];

enter:  // `ip` is where a run may begin
  if (coded) {
    const void* const entry =
        map_.find_code(*region, static_cast<uint32_t>(ip - region->code.data()));
    if (entry != nullptr) {
      const HartExit exit = run_code(*region, entry, left, retired);
      if (exit != HartExit::kSlow) {
        coded = exit != HartExit::kBudget;
        goto fetch;
      }
      ip = &region->code[(pc_ - code_base) / 2];
    }
  }
  goto* kLabels[static_cast<uint8_t>(ip->op)];

label_Undecoded : {
  sync_pc();
  *ip = map_.decode_at(*region, pc_);
  goto* kLabels[static_cast<uint8_t>(ip->op)];
}
label_RegionEnd : {
  sync_pc();
  goto fetch;
}
label_FetchFault : {
  sync_pc();
  trap_cause = kCauseFetchAccess;
  trap_value = pc_ + static_cast<uint32_t>(ip->imm);
  goto trap;
}
label_Breakpoint : {
  sync_pc();
  if (reported_breakpoint_ != pc_) {
    reported_breakpoint_ = pc_;
    reason = HartStop::kBreak;
    goto stop;
  }
  reported_breakpoint_ = kNoBreakpoint;
  goto* kLabels[static_cast<uint8_t>(ip->real_op)];
}
label_Illegal : {
  trap_cause = kCauseIllegal;
  trap_value = ip->raw;
  goto trap;
}

label_Li : {
  x[ip->rd] = static_cast<uint32_t>(ip->imm);
  TPU_NEXT();
}
label_Nop : { TPU_NEXT(); }
label_Jal : {
  x[ip->rd] = code_base + 2U * static_cast<uint32_t>(ip - region->code.data() + ip->halfwords);
  TPU_TAKEN(0);
}
label_JalFar : {
  sync_pc();
  x[ip->rd] = pc_ + 2U * ip->halfwords;
  pc_ += static_cast<uint32_t>(ip->imm);
  left -= ip->cycles;
  ++retired;
  goto fetch;
}
label_Jalr : {
  const uint32_t target = (x[ip->rs1] + static_cast<uint32_t>(ip->imm)) & ~1U;
  x[ip->rd] = code_base + 2U * static_cast<uint32_t>(ip - region->code.data() + ip->halfwords);
  left -= ip->cycles;
  ++retired;
  const uint32_t offset = target - code_base;
  if (offset >= region->memory.size_bytes || left <= 0) {
    pc_ = target;
    goto fetch;
  }
  ip = &region->code[offset / 2];
  goto enter;
}

  TPU_BRANCH(Beq, a == b)
  TPU_BRANCH(Bne, a != b)
  TPU_BRANCH(Blt, to_signed(a) < to_signed(b))
  TPU_BRANCH(Bge, to_signed(a) >= to_signed(b))
  TPU_BRANCH(Bltu, a < b)
  TPU_BRANCH(Bgeu, a >= b)
label_BranchFar : {
  const uint32_t a = x[ip->rs1];
  const uint32_t b = x[ip->rs2];
  const uint32_t word = ip->halfwords == 2 ? ip->raw : expand_rvc(static_cast<uint16_t>(ip->raw));
  const uint32_t kind = (word >> 13) & 3U;
  const bool base = kind == 0 ? a == b : kind == 2 ? to_signed(a) < to_signed(b) : a < b;
  const bool inverted = ((word >> 12) & 1U) != 0;
  if (base == inverted) {
    TPU_NEXT();
  }
  sync_pc();
  pc_ += static_cast<uint32_t>(ip->imm);
  left -= ip->cycles + taken_cycles;
  ++retired;
  goto fetch;
}

  TPU_LOAD(Lb, int8_t)
  TPU_LOAD(Lh, int16_t)
  TPU_LOAD(Lw, uint32_t)
  TPU_LOAD(Lbu, uint8_t)
  TPU_LOAD(Lhu, uint16_t)
  TPU_STORE(Sb, uint8_t)
  TPU_STORE(Sh, uint16_t)
  TPU_STORE(Sw, uint32_t)

  TPU_IMM_OP(Addi, a + b)
  TPU_IMM_OP(Slti, to_signed(a) < to_signed(b) ? 1U : 0U)
  TPU_IMM_OP(Sltiu, a < b ? 1U : 0U)
  TPU_IMM_OP(Xori, a ^ b)
  TPU_IMM_OP(Ori, a | b)
  TPU_IMM_OP(Andi, a & b)
  TPU_IMM_OP(Slli, a << b)
  TPU_IMM_OP(Srli, a >> b)
  TPU_IMM_OP(Srai, static_cast<uint32_t>(to_signed(a) >> b))
  TPU_REG_OP(Add, a + b)
  TPU_REG_OP(Sub, a - b)
  TPU_REG_OP(Sll, a << (b & 31U))
  TPU_REG_OP(Slt, to_signed(a) < to_signed(b) ? 1U : 0U)
  TPU_REG_OP(Sltu, a < b ? 1U : 0U)
  TPU_REG_OP(Xor, a ^ b)
  TPU_REG_OP(Srl, a >> (b & 31U))
  TPU_REG_OP(Sra, static_cast<uint32_t>(to_signed(a) >> (b & 31U)))
  TPU_REG_OP(Or, a | b)
  TPU_REG_OP(And, a & b)
  TPU_REG_OP(Mul, a * b)
  TPU_REG_OP(Mulh, high_word(int64_t{to_signed(a)} * to_signed(b)))
  TPU_REG_OP(Mulhsu, high_word(int64_t{to_signed(a)} * int64_t{b}))
  TPU_REG_OP(Mulhu, static_cast<uint32_t>((uint64_t{a} * b) >> 32))
  TPU_REG_OP(Div, divide_signed(a, b))
  TPU_REG_OP(Divu, b == 0 ? UINT32_MAX : a / b)
  TPU_REG_OP(Rem, remainder_signed(a, b))
  TPU_REG_OP(Remu, b == 0 ? a : a % b)

label_Ecall : {
  trap_cause = kCauseMachineEcall;
  trap_value = 0;
  goto trap;
}
label_Ebreak : {
  sync_pc();
  trap_cause = kCauseBreakpoint;
  trap_value = pc_;
  goto trap;
}
label_Mret : {
  return_from_trap();
  left -= ip->cycles + taken_cycles;
  ++retired;
  take_interrupt();
  goto fetch;
}
label_Wfi : {
  sync_pc();
  pc_ += 2U * ip->halfwords;
  left -= ip->cycles;
  ++retired;
  if (!csrs_.pending()) {
    waiting_ = true;
    reason = HartStop::kWfi;
    goto stop;
  }
  goto fetch;
}
label_Csr : {
  sync_pc();
  const uint64_t cycles_now = cycles_ + static_cast<uint64_t>(budget - left);
  if (!execute_csr(ip->raw, cycles_now, instret_ + retired)) {
    trap_cause = kCauseIllegal;
    trap_value = ip->raw;
    goto trap;
  }
  pc_ += 2U * ip->halfwords;
  left -= ip->cycles;
  ++retired;
  take_interrupt();
  goto fetch;
}

slow_load : {
  uint32_t value = 0;
  if ((access_addr & (access_size - 1)) != 0) {
    trap_cause = kCauseLoadMisaligned;
    trap_value = access_addr;
    goto trap;
  }
  switch (map_.load(access_addr, access_size, value)) {
    case Access::kDone:
      break;
    case Access::kMmio:
      mmio_ = {access_addr, 0, static_cast<uint8_t>(access_size), false};
      goto stop_mmio;
    case Access::kFault:
      trap_cause = kCauseLoadAccess;
      trap_value = access_addr;
      goto trap;
  }
  const HartOp op = ip->op == HartOp::kBreakpoint ? ip->real_op : ip->op;
  if (op == HartOp::kLb) {
    value = static_cast<uint32_t>(static_cast<int8_t>(value));
  } else if (op == HartOp::kLh) {
    value = static_cast<uint32_t>(static_cast<int16_t>(value));
  }
  x[ip->rd] = value;
  if (watches_.note(access_addr, access_size, false)) {
    goto stop_watch;
  }
  TPU_NEXT();
}

slow_store : {
  const uint32_t value = x[ip->rs2];
  if ((access_addr & (access_size - 1)) != 0) {
    trap_cause = kCauseStoreMisaligned;
    trap_value = access_addr;
    goto trap;
  }
  // The store may drop the entry of this very instruction: only its operation is touched, and the
  // fields that TPU_NEXT reads stay.
  switch (map_.store(access_addr, access_size, value)) {
    case Access::kDone:
      if (watches_.note(access_addr, access_size, true)) {
        goto stop_watch;
      }
      TPU_NEXT();
    case Access::kMmio:
      mmio_ = {access_addr, access_size == 4 ? value : value & ((1U << (8 * access_size)) - 1U),
               static_cast<uint8_t>(access_size), true};
      goto stop_mmio;
    case Access::kFault:
      trap_cause = kCauseStoreAccess;
      trap_value = access_addr;
      goto trap;
  }
}

trap:
  sync_pc();
  left -= 1;
  enter_trap(trap_cause, trap_value);
  if (dead_) {
    reason = HartStop::kTrap;
    goto stop;
  }
  goto fetch;

stop_mmio:
  sync_pc();
  mmio_insn_ = *ip;
  if (mmio_insn_.op == HartOp::kBreakpoint) {
    mmio_insn_.op = mmio_insn_.real_op;
  }
  mmio_pending_ = true;
  reason = HartStop::kMmio;
  goto stop;

stop_watch:  // behind the instruction
  left -= ip->cycles;
  ++retired;
  ip += ip->halfwords;
  sync_pc();
  reason = HartStop::kWatch;
  goto stop;

stop_budget:
  sync_pc();

stop:
  cycles_ += static_cast<uint64_t>(budget - left);
  instret_ += retired;
  return {static_cast<uint64_t>(budget - left), reason};
}

#undef TPU_NEXT
#undef TPU_TAKEN
#undef TPU_REG_OP
#undef TPU_IMM_OP
#undef TPU_BRANCH
#undef TPU_LOAD
#undef TPU_STORE

}  // namespace tpu::model
