// Encoders of RV32IMC + Zicsr instructions for the hart's tests: `addi(rd, rs1, imm)` and so on.
// Written from the ISA manual's formats, apart from the simulator's decoder on purpose.
#pragma once

#include <cstdint>

namespace tpu::model::rv {

constexpr uint32_t r_type(uint32_t funct7, uint32_t funct3, uint32_t rd, uint32_t rs1, uint32_t rs2,
                          uint32_t opcode = 0x33) {
  return (funct7 << 25) | (rs2 << 20) | (rs1 << 15) | (funct3 << 12) | (rd << 7) | opcode;
}
constexpr uint32_t i_type(uint32_t opcode, uint32_t funct3, uint32_t rd, uint32_t rs1,
                          int32_t imm) {
  return ((static_cast<uint32_t>(imm) & 0xFFFU) << 20) | (rs1 << 15) | (funct3 << 12) | (rd << 7) |
         opcode;
}
constexpr uint32_t store(uint32_t funct3, uint32_t rs2, int32_t imm, uint32_t rs1) {
  const uint32_t u = static_cast<uint32_t>(imm);
  return (((u >> 5) & 0x7FU) << 25) | (rs2 << 20) | (rs1 << 15) | (funct3 << 12) |
         ((u & 0x1FU) << 7) | 0x23U;
}
constexpr uint32_t branch(uint32_t funct3, uint32_t rs1, uint32_t rs2, int32_t imm) {
  const uint32_t u = static_cast<uint32_t>(imm);
  return (((u >> 12) & 1U) << 31) | (((u >> 5) & 0x3FU) << 25) | (rs2 << 20) | (rs1 << 15) |
         (funct3 << 12) | (((u >> 1) & 0xFU) << 8) | (((u >> 11) & 1U) << 7) | 0x63U;
}
constexpr uint32_t jal(uint32_t rd, int32_t imm) {
  const uint32_t u = static_cast<uint32_t>(imm);
  return (((u >> 20) & 1U) << 31) | (((u >> 1) & 0x3FFU) << 21) | (((u >> 11) & 1U) << 20) |
         (((u >> 12) & 0xFFU) << 12) | (rd << 7) | 0x6FU;
}

constexpr uint32_t lui(uint32_t rd, uint32_t imm20) { return (imm20 << 12) | (rd << 7) | 0x37U; }
constexpr uint32_t auipc(uint32_t rd, uint32_t imm20) { return (imm20 << 12) | (rd << 7) | 0x17U; }
constexpr uint32_t addi(uint32_t rd, uint32_t rs1, int32_t imm) {
  return i_type(0x13, 0, rd, rs1, imm);
}
constexpr uint32_t jalr(uint32_t rd, uint32_t rs1, int32_t imm) {
  return i_type(0x67, 0, rd, rs1, imm);
}
constexpr uint32_t lb(uint32_t rd, int32_t imm, uint32_t rs1) { return i_type(3, 0, rd, rs1, imm); }
constexpr uint32_t lh(uint32_t rd, int32_t imm, uint32_t rs1) { return i_type(3, 1, rd, rs1, imm); }
constexpr uint32_t lw(uint32_t rd, int32_t imm, uint32_t rs1) { return i_type(3, 2, rd, rs1, imm); }
constexpr uint32_t lbu(uint32_t rd, int32_t imm, uint32_t rs1) {
  return i_type(3, 4, rd, rs1, imm);
}
constexpr uint32_t sb(uint32_t rs2, int32_t imm, uint32_t rs1) { return store(0, rs2, imm, rs1); }
constexpr uint32_t sw(uint32_t rs2, int32_t imm, uint32_t rs1) { return store(2, rs2, imm, rs1); }
constexpr uint32_t add(uint32_t rd, uint32_t rs1, uint32_t rs2) {
  return r_type(0, 0, rd, rs1, rs2);
}
constexpr uint32_t mul(uint32_t rd, uint32_t rs1, uint32_t rs2) {
  return r_type(1, 0, rd, rs1, rs2);
}
constexpr uint32_t div(uint32_t rd, uint32_t rs1, uint32_t rs2) {
  return r_type(1, 4, rd, rs1, rs2);
}
constexpr uint32_t bne(uint32_t rs1, uint32_t rs2, int32_t imm) { return branch(1, rs1, rs2, imm); }
constexpr uint32_t csrrw(uint32_t rd, uint32_t csr, uint32_t rs1) {
  return i_type(0x73, 1, rd, rs1, static_cast<int32_t>(csr));
}
constexpr uint32_t csrrs(uint32_t rd, uint32_t csr, uint32_t rs1) {
  return i_type(0x73, 2, rd, rs1, static_cast<int32_t>(csr));
}
constexpr uint32_t csrrsi(uint32_t rd, uint32_t csr, uint32_t imm5) {
  return i_type(0x73, 6, rd, imm5, static_cast<int32_t>(csr));
}
constexpr uint32_t csrrci(uint32_t rd, uint32_t csr, uint32_t imm5) {
  return i_type(0x73, 7, rd, imm5, static_cast<int32_t>(csr));
}
inline constexpr uint32_t kEcall = 0x00000073;
inline constexpr uint32_t kEbreak = 0x00100073;
inline constexpr uint32_t kMret = 0x30200073;
inline constexpr uint32_t kWfi = 0x10500073;
inline constexpr uint32_t kNop = 0x00000013;

}  // namespace tpu::model::rv
