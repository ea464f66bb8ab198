// Random programs of RV32IMC for the control hart: loops, forward branches, loads and stores.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "rv_encode.hpp"

namespace tpu::model {

inline constexpr uint32_t kBaseRegister = 8;      // middle of 4 KiB of data; no program writes it
inline constexpr uint32_t kCounterRegister = 31;  // counts the loop down

// Control flow goes forward, but for one counted loop.
class ProgramMaker {
 public:
  // `code_end`: of 4 KiB of code that may be loaded from; then some accesses trap, too: those that
  // are misaligned or behind the end of a memory, all of four bytes.
  explicit ProgramMaker(std::mt19937_64& random, uint32_t code_end = 0)
      : random_(random), code_end_(code_end) {}

  std::vector<uint16_t> make() {
    code_.clear();
    word(rv::addi(kCounterRegister, 0, static_cast<int32_t>(1 + pick(5))));
    const size_t loop = code_.size();
    const unsigned count = 20 + pick(60);
    for (unsigned i = 0; i < count; ++i) {
      one();
    }
    for (unsigned i = 0; i < 8; ++i) {
      half(0x0001);  // landing place of the last forward branches
    }
    word(rv::addi(kCounterRegister, kCounterRegister, -1));
    const auto distance = static_cast<int32_t>(2 * (code_.size() - loop));
    word(rv::bne(kCounterRegister, 0, -distance));
    return code_;
  }

 private:
  uint32_t pick(uint32_t count) { return static_cast<uint32_t>(random_() % count); }
  void half(uint32_t value) { code_.push_back(static_cast<uint16_t>(value)); }
  void word(uint32_t value) {
    half(value & 0xFFFFU);
    half(value >> 16);
  }
  // Any destination but the base and the counter; x0 is one of them.
  uint32_t destination() {
    const uint32_t rd = pick(31);
    return rd == kBaseRegister ? 0 : rd;
  }
  uint32_t source() { return pick(32); }

  void one() {
    switch (pick(8)) {
      case 0:
      case 1: {
        const uint32_t funct3 = pick(8);
        const bool alternate = (funct3 == 0 || funct3 == 5) && pick(2) != 0;
        word(rv::r_type(alternate ? 0x20 : 0, funct3, destination(), source(), source()));
        break;
      }
      case 2:
        word(rv::r_type(1, pick(8), destination(), source(), source()));
        break;
      case 3:
        immediate();
        break;
      case 4:
        memory();
        break;
      case 5:
        word(pick(2) != 0 ? rv::lui(destination(), pick(1U << 20))
                          : rv::auipc(destination(), pick(1U << 20)));
        break;
      case 6:
        control();
        break;
      default:
        compressed();
        break;
    }
  }

  void immediate() {
    const uint32_t funct3 = pick(8);
    int32_t imm = static_cast<int32_t>(pick(4096)) - 2048;
    if (funct3 == 1) {
      imm = static_cast<int32_t>(pick(32));
    } else if (funct3 == 5) {
      imm = static_cast<int32_t>(pick(32) | (pick(2) << 10));
    }
    word(rv::i_type(0x13, funct3, destination(), source(), imm));
  }

  void memory() {
    const uint32_t size = pick(3);
    const uint32_t funct3 = size == 2 ? 2 : size + 4 * pick(2);
    const int32_t aligned = code_end_ != 0 && pick(8) == 0 ? -1 : -static_cast<int32_t>(1U << size);
    if (code_end_ != 0 && pick(4) == 0) {
      word(rv::lui(7, code_end_ >> 12));
      const int32_t offset =
          pick(2) != 0 ? static_cast<int32_t>(pick(16)) - 8 : static_cast<int32_t>(pick(128)) - 64;
      word(rv::i_type(0x03, funct3, destination(), 7, offset & aligned));
      return;
    }
    const int32_t offset = (static_cast<int32_t>(pick(4096)) - 2048) & aligned;
    if (pick(2) != 0) {
      word(rv::store(size, source(), offset, kBaseRegister));
    } else {
      word(rv::i_type(0x03, funct3, destination(), kBaseRegister, offset));
    }
  }

  // Forward only, over at most 8 halfwords: what follows may be cut in two halves of a long
  // instruction, so the jumped-over part is filled with compressed instructions.
  void control() {
    const uint32_t skip = pick(6);
    switch (pick(6)) {
      case 0: {
        constexpr uint32_t kKinds[6] = {0, 1, 4, 5, 6, 7};
        word(rv::branch(kKinds[pick(6)], source(), source(), static_cast<int32_t>(4 + 2 * skip)));
        break;
      }
      case 1:
        word(rv::jal(destination(), static_cast<int32_t>(4 + 2 * skip)));
        break;
      case 2:  // c.j, c.jal
        half((pick(2) != 0 ? 0xA001U : 0x2001U) | ((1 + skip) & 7U) << 3);
        break;
      case 3:  // c.beqz, c.bnez
        half((pick(2) != 0 ? 0xC001U : 0xE001U) | pick(8) << 7 | ((1 + skip) & 3U) << 3 |
             ((1 + skip) >> 2) << 10);
        break;
      case 4:  // auipc t, 0; c.addi t, 8 + ...; c.jr t or c.jalr t
        word(rv::auipc(7, 0));
        half(0x0001U | 7U << 7 | (8 + 2 * skip) << 2);
        half((pick(2) != 0 ? 0x8002U : 0x9002U) | 7U << 7);
        break;
      default:  // auipc t, 0; jalr rd, t, 8 + ...
        word(rv::auipc(7, 0));
        word(rv::jalr(destination(), 7, static_cast<int32_t>(8 + 2 * skip + pick(2))));
        break;
    }
    for (uint32_t i = 0; i < skip; ++i) {
      compressed();
    }
  }

  void compressed() {
    const uint32_t rd = destination();
    const uint32_t small = 1 + pick(7);  // x9..x15
    const uint32_t small2 = pick(8);
    const uint32_t imm = pick(64);
    const uint32_t imm_bits = ((imm >> 5) << 12) | ((imm & 31U) << 2);
    switch (pick(10)) {
      case 0:
        half(0x0001U | (rd << 7) | imm_bits);  // c.addi
        break;
      case 1:
        half(0x4001U | (rd << 7) | imm_bits);  // c.li
        break;
      case 2:
        half(rd == 2 || imm == 0 ? 0x0001U : 0x6001U | (rd << 7) | imm_bits);  // c.lui
        break;
      case 3:
        half(0x8001U | (pick(2) << 10) | (small << 7) | ((imm & 31U) << 2));  // c.srli, c.srai
        break;
      case 4:
        half(0x8801U | (small << 7) | imm_bits);  // c.andi
        break;
      case 5:
        half(0x8C01U | (small << 7) | (pick(4) << 5) | (small2 << 2));  // c.sub, xor, or, and
        break;
      case 6:
        half(0x0002U | (rd << 7) | ((imm & 31U) << 2));  // c.slli
        break;
      case 7:
        half((pick(2) != 0 ? 0x8002U : 0x9002U) | ((rd == 0 ? 1 : rd) << 7) |
             ((1 + pick(31)) << 2));  // c.mv, c.add
        break;
      case 8:
        // c.lw from the base (x8), any of its 32 words
        half(0x4000U | ((imm & 7U) << 10) | ((imm & 0x18U) << 2) | (small << 2));
        break;
      default:
        half(0xC000U | ((imm & 7U) << 10) | ((imm & 0x18U) << 2) | (small2 << 2));  // c.sw
        break;
    }
  }

  std::mt19937_64& random_;
  const uint32_t code_end_;
  std::vector<uint16_t> code_;
};

}  // namespace tpu::model
