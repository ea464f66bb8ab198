// Decoded form of one RV32IMC instruction and the decoder from machine code.
// Part of the control hart's simulator; pure functions without state.
#pragma once

#include <cstdint>

namespace tpu::model {

inline constexpr unsigned kRegisterCount = 32;
inline constexpr uint8_t kDiscardRegister = 32;  // stands for x0 as a destination

// Every operation of the interpreter. The first four are states of an entry, not instructions;
// entries of zero bytes are in the first.
// By hand: clang-format 14 never settles on one layout of this list.
// clang-format off
#define TPU_HART_OPS(X) \
  X(Undecoded) X(RegionEnd) X(Breakpoint) X(FetchFault) X(Illegal) X(Li) X(Jal) X(JalFar) \
  X(Jalr) X(Beq) X(Bne) X(Blt) X(Bge) X(Bltu) X(Bgeu) X(BranchFar) \
  X(Lb) X(Lh) X(Lw) X(Lbu) X(Lhu) X(Sb) X(Sh) X(Sw) \
  X(Addi) X(Slti) X(Sltiu) X(Xori) X(Ori) X(Andi) X(Slli) X(Srli) \
  X(Srai) X(Add) X(Sub) X(Sll) X(Slt) X(Sltu) X(Xor) X(Srl) \
  X(Sra) X(Or) X(And) X(Mul) X(Mulh) X(Mulhsu) X(Mulhu) X(Div) \
  X(Divu) X(Rem) X(Remu) X(Nop) X(Ecall) X(Ebreak) X(Mret) X(Wfi) \
  X(Csr)
// clang-format on

enum class HartOp : uint8_t {
#define TPU_HART_OP_ENUM(name) k##name,
  TPU_HART_OPS(TPU_HART_OP_ENUM)
#undef TPU_HART_OP_ENUM
};

struct DecodedInsn {
  HartOp op = HartOp::kUndecoded;
  HartOp real_op = HartOp::kUndecoded;  // the instruction under a breakpoint
  uint8_t rd = kDiscardRegister;
  uint8_t rs1 = 0;
  uint8_t rs2 = 0;
  uint8_t halfwords = 1;  // length of the instruction
  uint16_t cycles = 1;    // without a taken conditional branch
  // Immediate; Li: the value; jumps and branches inside a region: distance in halfwords; far ones:
  // distance in bytes; shifts: the amount.
  int32_t imm = 0;
  uint32_t raw = 0;  // machine code, 16 bits wide if compressed
};
static_assert(sizeof(DecodedInsn) == 16);

struct HartTiming;

// Decodes a 32-bit instruction at `pc`. Jumps and branches hold their distance in bytes with the
// far operations. `halfwords`, `cycles` and `raw` are for the caller to fill.
DecodedInsn decode_rv32(uint32_t word, uint32_t pc);

// The 32-bit instruction that a compressed one stands for; 0 (illegal) for reserved encodings.
uint32_t expand_rvc(uint16_t half);

}  // namespace tpu::model
