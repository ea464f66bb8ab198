// Decoder of the control hart: RV32IM + Zicsr words, and the expansion of compressed instructions.
// Hints decode to Nop or to writes of the discard register; reserved encodings are illegal.
#include "hart/hart_insn.hpp"

namespace tpu::model {
namespace {

constexpr uint32_t bits(uint32_t value, unsigned high, unsigned low) {
  return (value >> low) & ((1U << (high - low + 1)) - 1U);
}

constexpr int32_t sign_extend(uint32_t value, unsigned width) {
  const unsigned shift = 32 - width;
  return static_cast<int32_t>(value << shift) >> shift;
}

constexpr int32_t imm_i(uint32_t w) { return static_cast<int32_t>(w) >> 20; }
constexpr int32_t imm_s(uint32_t w) {
  return sign_extend(bits(w, 31, 25) << 5 | bits(w, 11, 7), 12);
}
constexpr int32_t imm_b(uint32_t w) {
  return sign_extend(
      bits(w, 31, 31) << 12 | bits(w, 7, 7) << 11 | bits(w, 30, 25) << 5 | bits(w, 11, 8) << 1, 13);
}
constexpr int32_t imm_j(uint32_t w) {
  return sign_extend(
      bits(w, 31, 31) << 20 | bits(w, 19, 12) << 12 | bits(w, 20, 20) << 11 | bits(w, 30, 21) << 1,
      21);
}

constexpr uint8_t destination(uint32_t index) {
  return index == 0 ? kDiscardRegister : static_cast<uint8_t>(index);
}

HartOp load_op(uint32_t funct3) {
  switch (funct3) {
    case 0:
      return HartOp::kLb;
    case 1:
      return HartOp::kLh;
    case 2:
      return HartOp::kLw;
    case 4:
      return HartOp::kLbu;
    case 5:
      return HartOp::kLhu;
    default:
      return HartOp::kIllegal;
  }
}

HartOp immediate_op(uint32_t word) {
  const uint32_t funct7 = bits(word, 31, 25);
  switch (bits(word, 14, 12)) {
    case 0:
      return HartOp::kAddi;
    case 1:
      return funct7 == 0 ? HartOp::kSlli : HartOp::kIllegal;
    case 2:
      return HartOp::kSlti;
    case 3:
      return HartOp::kSltiu;
    case 4:
      return HartOp::kXori;
    case 5:
      if (funct7 == 0) {
        return HartOp::kSrli;
      }
      return funct7 == 0x20 ? HartOp::kSrai : HartOp::kIllegal;
    case 6:
      return HartOp::kOri;
    default:
      return HartOp::kAndi;
  }
}

HartOp register_op(uint32_t word) {
  constexpr HartOp kBase[8] = {HartOp::kAdd, HartOp::kSll, HartOp::kSlt, HartOp::kSltu,
                               HartOp::kXor, HartOp::kSrl, HartOp::kOr,  HartOp::kAnd};
  constexpr HartOp kMul[8] = {HartOp::kMul, HartOp::kMulh, HartOp::kMulhsu, HartOp::kMulhu,
                              HartOp::kDiv, HartOp::kDivu, HartOp::kRem,    HartOp::kRemu};
  const uint32_t funct3 = bits(word, 14, 12);
  switch (bits(word, 31, 25)) {
    case 0:
      return kBase[funct3];
    case 1:
      return kMul[funct3];
    case 0x20:
      if (funct3 == 0) {
        return HartOp::kSub;
      }
      return funct3 == 5 ? HartOp::kSra : HartOp::kIllegal;
    default:
      return HartOp::kIllegal;
  }
}

HartOp system_op(uint32_t word) {
  switch (word) {
    case 0x00000073:
      return HartOp::kEcall;
    case 0x00100073:
      return HartOp::kEbreak;
    case 0x30200073:
      return HartOp::kMret;
    case 0x10500073:
      return HartOp::kWfi;
    default:
      return bits(word, 13, 12) != 0 ? HartOp::kCsr : HartOp::kIllegal;
  }
}

}  // namespace

DecodedInsn decode_rv32(uint32_t word, uint32_t pc) {
  DecodedInsn insn;
  insn.op = HartOp::kIllegal;
  insn.rd = destination(bits(word, 11, 7));
  insn.rs1 = static_cast<uint8_t>(bits(word, 19, 15));
  insn.rs2 = static_cast<uint8_t>(bits(word, 24, 20));
  const uint32_t funct3 = bits(word, 14, 12);
  switch (bits(word, 6, 0)) {
    case 0x37:
      insn.op = HartOp::kLi;
      insn.imm = static_cast<int32_t>(word & 0xFFFFF000U);
      break;
    case 0x17:
      insn.op = HartOp::kLi;
      insn.imm = static_cast<int32_t>(pc + (word & 0xFFFFF000U));
      break;
    case 0x6F:
      insn.op = HartOp::kJalFar;
      insn.imm = imm_j(word);
      break;
    case 0x67:
      insn.op = funct3 == 0 ? HartOp::kJalr : HartOp::kIllegal;
      insn.imm = imm_i(word);
      break;
    case 0x63:
      insn.op = (funct3 == 2 || funct3 == 3) ? HartOp::kIllegal : HartOp::kBranchFar;
      insn.imm = imm_b(word);
      break;
    case 0x03:
      insn.op = load_op(funct3);
      insn.imm = imm_i(word);
      break;
    case 0x23:
      insn.op = funct3 == 0   ? HartOp::kSb
                : funct3 == 1 ? HartOp::kSh
                : funct3 == 2 ? HartOp::kSw
                              : HartOp::kIllegal;
      insn.imm = imm_s(word);
      break;
    case 0x13:
      insn.op = immediate_op(word);
      insn.imm = (funct3 == 1 || funct3 == 5) ? static_cast<int32_t>(insn.rs2) : imm_i(word);
      break;
    case 0x33:
      insn.op = register_op(word);
      break;
    case 0x0F:  // fence; fence.i too, since stores drop decoded code
      insn.op = funct3 <= 1 ? HartOp::kNop : HartOp::kIllegal;
      break;
    case 0x73:
      insn.op = system_op(word);
      break;
    default:
      break;
  }
  return insn;
}

namespace {

// Encoders of the 32-bit forms that compressed instructions expand to.
constexpr uint32_t enc_i(uint32_t opcode, uint32_t funct3, uint32_t rd, uint32_t rs1,
                         uint32_t imm) {
  return (imm & 0xFFFU) << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode;
}
constexpr uint32_t enc_r(uint32_t funct7, uint32_t funct3, uint32_t rd, uint32_t rs1,
                         uint32_t rs2) {
  return funct7 << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | 0x33U;
}
constexpr uint32_t enc_sw(uint32_t rs1, uint32_t rs2, uint32_t imm) {
  return bits(imm, 11, 5) << 25 | rs2 << 20 | rs1 << 15 | 2U << 12 | bits(imm, 4, 0) << 7 | 0x23U;
}
constexpr uint32_t enc_branch(uint32_t funct3, uint32_t rs1, uint32_t imm) {
  return bits(imm, 12, 12) << 31 | bits(imm, 10, 5) << 25 | rs1 << 15 | funct3 << 12 |
         bits(imm, 4, 1) << 8 | bits(imm, 11, 11) << 7 | 0x63U;
}
constexpr uint32_t enc_jal(uint32_t rd, uint32_t imm) {
  return bits(imm, 20, 20) << 31 | bits(imm, 10, 1) << 21 | bits(imm, 11, 11) << 20 |
         bits(imm, 19, 12) << 12 | rd << 7 | 0x6FU;
}

constexpr uint32_t kLoad = 0x03;
constexpr uint32_t kOpImm = 0x13;
constexpr uint32_t kJalr = 0x67;
constexpr uint32_t kSp = 2;

// 6-bit immediate of c.addi, c.li, c.andi.
uint32_t imm6(uint32_t h) {
  return static_cast<uint32_t>(sign_extend(bits(h, 12, 12) << 5 | bits(h, 6, 2), 6));
}

uint32_t expand_quadrant0(uint32_t h) {
  const uint32_t rd = 8 + bits(h, 4, 2);
  const uint32_t rs1 = 8 + bits(h, 9, 7);
  const uint32_t word_offset = bits(h, 12, 10) << 3 | bits(h, 6, 6) << 2 | bits(h, 5, 5) << 6;
  switch (bits(h, 15, 13)) {
    case 0: {
      const uint32_t imm =
          bits(h, 12, 11) << 4 | bits(h, 10, 7) << 6 | bits(h, 6, 6) << 2 | bits(h, 5, 5) << 3;
      return imm == 0 ? 0 : enc_i(kOpImm, 0, rd, kSp, imm);
    }
    case 2:
      return enc_i(kLoad, 2, rd, rs1, word_offset);
    case 6:
      return enc_sw(rs1, rd, word_offset);
    default:
      return 0;
  }
}

uint32_t expand_arithmetic(uint32_t h) {
  const uint32_t rd = 8 + bits(h, 9, 7);
  const uint32_t rs2 = 8 + bits(h, 4, 2);
  const uint32_t shift = bits(h, 6, 2);
  switch (bits(h, 11, 10)) {
    case 0:
      return bits(h, 12, 12) != 0 ? 0 : enc_i(kOpImm, 5, rd, rd, shift);
    case 1:
      return bits(h, 12, 12) != 0 ? 0 : enc_i(kOpImm, 5, rd, rd, shift | 0x400U);
    case 2:
      return enc_i(kOpImm, 7, rd, rd, imm6(h));
    default:
      break;
  }
  if (bits(h, 12, 12) != 0) {
    return 0;
  }
  constexpr uint32_t kFunct3[4] = {0, 4, 6, 7};  // sub, xor, or, and
  const uint32_t which = bits(h, 6, 5);
  return enc_r(which == 0 ? 0x20U : 0U, kFunct3[which], rd, rd, rs2);
}

uint32_t expand_quadrant1(uint32_t h) {
  const uint32_t rd = bits(h, 11, 7);
  const uint32_t jump = static_cast<uint32_t>(sign_extend(
      bits(h, 12, 12) << 11 | bits(h, 11, 11) << 4 | bits(h, 10, 9) << 8 | bits(h, 8, 8) << 10 |
          bits(h, 7, 7) << 6 | bits(h, 6, 6) << 7 | bits(h, 5, 3) << 1 | bits(h, 2, 2) << 5,
      12));
  const uint32_t branch = static_cast<uint32_t>(
      sign_extend(bits(h, 12, 12) << 8 | bits(h, 11, 10) << 3 | bits(h, 6, 5) << 6 |
                      bits(h, 4, 3) << 1 | bits(h, 2, 2) << 5,
                  9));
  switch (bits(h, 15, 13)) {
    case 0:
      return enc_i(kOpImm, 0, rd, rd, imm6(h));
    case 1:
      return enc_jal(1, jump);
    case 2:
      return enc_i(kOpImm, 0, rd, 0, imm6(h));
    case 3: {
      if (rd == kSp) {
        const uint32_t imm = static_cast<uint32_t>(
            sign_extend(bits(h, 12, 12) << 9 | bits(h, 6, 6) << 4 | bits(h, 5, 5) << 6 |
                            bits(h, 4, 3) << 7 | bits(h, 2, 2) << 5,
                        10));
        return imm == 0 ? 0 : enc_i(kOpImm, 0, kSp, kSp, imm);
      }
      const uint32_t imm = imm6(h);
      return imm == 0 ? 0 : (imm << 12 | rd << 7 | 0x37U);
    }
    case 4:
      return expand_arithmetic(h);
    case 5:
      return enc_jal(0, jump);
    case 6:
      return enc_branch(0, 8 + bits(h, 9, 7), branch);
    default:
      return enc_branch(1, 8 + bits(h, 9, 7), branch);
  }
}

uint32_t expand_quadrant2(uint32_t h) {
  const uint32_t rd = bits(h, 11, 7);
  const uint32_t rs2 = bits(h, 6, 2);
  switch (bits(h, 15, 13)) {
    case 0:
      return bits(h, 12, 12) != 0 ? 0 : enc_i(kOpImm, 1, rd, rd, rs2);
    case 2: {
      const uint32_t imm = bits(h, 12, 12) << 5 | bits(h, 6, 4) << 2 | bits(h, 3, 2) << 6;
      return rd == 0 ? 0 : enc_i(kLoad, 2, rd, kSp, imm);
    }
    case 4:
      if (bits(h, 12, 12) == 0) {
        if (rs2 != 0) {
          return enc_r(0, 0, rd, 0, rs2);
        }
        return rd == 0 ? 0 : enc_i(kJalr, 0, 0, rd, 0);
      }
      if (rs2 != 0) {
        return enc_r(0, 0, rd, rd, rs2);
      }
      return rd == 0 ? 0x00100073U : enc_i(kJalr, 0, 1, rd, 0);
    case 6:
      return enc_sw(kSp, rs2, bits(h, 12, 9) << 2 | bits(h, 8, 7) << 6);
    default:
      return 0;
  }
}

}  // namespace

uint32_t expand_rvc(uint16_t half) {
  switch (half & 3U) {
    case 0:
      return expand_quadrant0(half);
    case 1:
      return expand_quadrant1(half);
    case 2:
      return expand_quadrant2(half);
    default:
      return 0;
  }
}

}  // namespace tpu::model
