// The control hart against the Unicorn engine (QEMU's RISC-V target) as an oracle: random programs
// of RV32IMC with loops, forward branches, loads and stores, and every compressed encoding once.
// All registers, the program counter and the data memory are compared after each program.
// The number of programs is set by TPU_HART_PROGRAMS (default 3,000), the seed by TPU_SEED.
#include <gtest/gtest.h>
#include <unicorn/unicorn.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "hart/hart.hpp"
#include "rv_encode.hpp"

namespace tpu::model {
namespace {

constexpr HartTiming kTiming{
    .taken_branch_cycles = 1, .load_cycles = 1, .mul_cycles = 2, .div_cycles = 16};
constexpr uint32_t kCode = 0x1000'0000;
constexpr uint32_t kCodeSize = 0x40'0000;
constexpr uint32_t kSlot = 0x800;  // a program has its own addresses: no stale translations
constexpr uint32_t kData = 0x2000'0000;
constexpr uint32_t kDataSize = 0x1000;
constexpr uint32_t kDataMiddle = kData + kDataSize / 2;
constexpr uint32_t kBaseRegister = 8;      // holds kDataMiddle; never written by a program
constexpr uint32_t kCounterRegister = 31;  // counts the loop down

uint64_t environment_number(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 0);
}

class Oracle {
 public:
  Oracle() {
    check(uc_open(UC_ARCH_RISCV, UC_MODE_RISCV32, &engine_), "uc_open");
    check(uc_mem_map(engine_, kCode, kCodeSize, UC_PROT_ALL), "map code");
    check(uc_mem_map(engine_, kData, kDataSize, UC_PROT_READ | UC_PROT_WRITE), "map data");
  }
  Oracle(const Oracle&) = delete;
  Oracle& operator=(const Oracle&) = delete;
  ~Oracle() { uc_close(engine_); }

  void write(uint32_t addr, const void* bytes, size_t size) {
    check(uc_mem_write(engine_, addr, bytes, size), "write");
  }
  void read(uint32_t addr, void* bytes, size_t size) {
    check(uc_mem_read(engine_, addr, bytes, size), "read");
  }
  void set_reg(unsigned index, uint32_t value) {
    check(uc_reg_write(engine_, UC_RISCV_REG_X0 + static_cast<int>(index), &value), "set_reg");
  }
  uint32_t reg(unsigned index) {
    uint32_t value = 0;
    check(uc_reg_read(engine_, UC_RISCV_REG_X0 + static_cast<int>(index), &value), "reg");
    return value;
  }
  uint32_t pc() {
    uint32_t value = 0;
    check(uc_reg_read(engine_, UC_RISCV_REG_PC, &value), "pc");
    return value;
  }
  // Runs from `begin` until `end` is reached; `count` instructions at most (0: no limit).
  bool run(uint32_t begin, uint32_t end, size_t count) {
    return uc_emu_start(engine_, begin, end, 0, count) == UC_ERR_OK;
  }

 private:
  static void check(uc_err error, const char* what) {
    if (error != UC_ERR_OK) {
      ADD_FAILURE() << what << ": " << uc_strerror(error);
    }
  }
  uc_engine* engine_ = nullptr;
};

// Grows a program of halfwords; control flow goes forward, but for one counted loop.
class ProgramMaker {
 public:
  explicit ProgramMaker(std::mt19937_64& random) : random_(random) {}

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
    const int32_t offset =
        (static_cast<int32_t>(pick(4096)) - 2048) & -static_cast<int32_t>(1U << size);
    if (pick(2) != 0) {
      word(rv::store(size, source(), offset, kBaseRegister));
    } else {
      const uint32_t funct3 = size == 2 ? 2 : size + 4 * pick(2);
      word(rv::i_type(0x03, funct3, destination(), kBaseRegister, offset));
    }
  }

  // Forward only, over at most 8 halfwords: what follows may be cut in two halves of a long
  // instruction, so the jumped-over part is filled with compressed instructions.
  void control() {
    const uint32_t skip = pick(6);
    switch (pick(3)) {
      case 0: {
        constexpr uint32_t kKinds[6] = {0, 1, 4, 5, 6, 7};
        word(rv::branch(kKinds[pick(6)], source(), source(), static_cast<int32_t>(4 + 2 * skip)));
        break;
      }
      case 1:
        word(rv::jal(destination(), static_cast<int32_t>(4 + 2 * skip)));
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
  std::vector<uint16_t> code_;
};

class HartOracleTest : public ::testing::Test {
 protected:
  HartOracleTest()
      : code_(kCodeSize),
        data_(kDataSize),
        hart_(0, kTiming),
        random_(environment_number("TPU_SEED", 1)) {
    hart_.add_memory({kCode, kCodeSize, code_.data(), true, true});
    hart_.add_memory({kData, kDataSize, data_.data(), true, false});
    hart_.reset(kCode);
  }

  uint32_t next_slot() {
    slot_ = (slot_ + kSlot) % kCodeSize;
    if (slot_ == 0) {  // addresses are used again: a new engine has no translations of them
      oracle_ = std::make_unique<Oracle>();
      oracle_->write(kData, data_.data(), data_.size());
    }
    return kCode + slot_;
  }

  void place(uint32_t addr, const std::vector<uint16_t>& program) {
    const size_t bytes = 2 * program.size();
    ASSERT_LE(bytes, kSlot);
    std::memcpy(&code_[addr - kCode], program.data(), bytes);
    hart_.memory_changed(addr, static_cast<uint32_t>(bytes));
    oracle_->write(addr, program.data(), bytes);
  }

  // Interesting values often: limits, small numbers, sign bits.
  uint32_t random_value() {
    constexpr std::array<uint32_t, 8> kSpecial = {0,          1,      0xFFFFFFFF, 0x80000000,
                                                  0x7FFFFFFF, 0x8000, 0xFF,       0xFFFF8000};
    const uint64_t r = random_();
    return (r & 3U) == 0 ? kSpecial[(r >> 2) % kSpecial.size()] : static_cast<uint32_t>(r >> 32);
  }

  void set_state() {
    for (unsigned i = 1; i < kRegisterCount; ++i) {
      const uint32_t value = i == kBaseRegister ? kDataMiddle : random_value();
      hart_.set_reg(i, value);
      oracle_->set_reg(i, value);
    }
  }

  std::string difference() {
    for (unsigned i = 0; i < kRegisterCount; ++i) {
      if (hart_.reg(i) != oracle_->reg(i)) {
        return "x" + std::to_string(i) + ": hart " + std::to_string(hart_.reg(i)) + ", oracle " +
               std::to_string(oracle_->reg(i));
      }
    }
    if (hart_.pc() != oracle_->pc()) {
      return "pc: hart " + std::to_string(hart_.pc()) + ", oracle " + std::to_string(oracle_->pc());
    }
    std::vector<uint8_t> other(kDataSize);
    oracle_->read(kData, other.data(), other.size());
    return other == data_ ? "" : "data memory differs";
  }

  std::vector<uint8_t> code_;
  std::vector<uint8_t> data_;
  Hart hart_;
  std::unique_ptr<Oracle> oracle_ = std::make_unique<Oracle>();
  std::mt19937_64 random_;
  uint32_t slot_ = 0;
};

TEST_F(HartOracleTest, RandomProgramsEndInTheSameState) {
  const uint64_t programs = environment_number("TPU_HART_PROGRAMS", 3000);
  RecordProperty("seed", std::to_string(environment_number("TPU_SEED", 1)));
  ProgramMaker maker(random_);
  uint64_t instructions = 0;
  for (uint64_t n = 0; n < programs; ++n) {
    const std::vector<uint16_t> program = maker.make();
    const uint32_t begin = next_slot();
    const uint32_t end = begin + static_cast<uint32_t>(2 * program.size());
    place(begin, program);
    set_state();
    hart_.set_breakpoint(end);
    hart_.set_pc(begin);
    const uint64_t retired = hart_.instret();
    ASSERT_EQ(hart_.run(1'000'000).reason, HartStop::kBreak) << "program " << n;
    hart_.clear_breakpoint(end);
    instructions += hart_.instret() - retired;
    ASSERT_TRUE(oracle_->run(begin, end, 0)) << "program " << n;
    ASSERT_EQ(difference(), "") << "program " << n << " of seed "
                                << environment_number("TPU_SEED", 1);
  }
  EXPECT_GT(instructions, programs * 40);
}

// Alone, with the same registers: each of the 49,152 compressed encodings either does the same
// thing in both or is refused by both. Floating point is left out (the oracle has it, the hart
// refuses it).
TEST_F(HartOracleTest, EveryCompressedEncodingAgrees) {
  unsigned refused = 0;
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const uint32_t quadrant = half & 3U;
    const uint32_t funct3 = half >> 13;
    const bool floating = (quadrant == 0 || quadrant == 2) && (funct3 & 1U) != 0;
    if (quadrant == 3 || floating) {
      continue;
    }
    if (half == 0x9002) {
      continue;  // c.ebreak: a trap in the hart, a stop in the oracle
    }
    // The oracle accepts some reserved encodings: shifts by 32 and more, c.subw, and quadrant 0's
    // funct3 = 4.
    const bool reserved = (half & 0xF003U) == 0x1002 || (half & 0xF803U) == 0x9001 ||
                          (half & 0xFC03U) == 0x9C01 || (half & 0xE003U) == 0x8000;
    const uint32_t begin = next_slot() + kSlot / 2;
    place(begin, {static_cast<uint16_t>(half), 0x0001});
    for (unsigned i = 1; i < kRegisterCount; ++i) {
      // Loads and stores stay in the data memory, jumps in the code.
      const uint32_t value = kData + 0x200 + 16 * i;
      hart_.set_reg(i, value);
      oracle_->set_reg(i, value);
    }
    hart_.reset(begin);
    for (unsigned i = 1; i < kRegisterCount; ++i) {
      hart_.set_reg(i, kData + 0x200 + 16 * i);
    }
    const uint64_t retired = hart_.instret();
    hart_.run(1);
    const bool accepted = hart_.instret() == retired + 1;
    // A jump to a register leaves executable memory, which the oracle may report already.
    const bool jump_register = quadrant == 2 && funct3 == 4 && ((half >> 2) & 31U) == 0;
    if (reserved) {
      ASSERT_FALSE(accepted) << std::hex << half;
      continue;
    }
    const bool oracle_accepted = oracle_->run(begin, 0, 1);
    if (!jump_register) {
      ASSERT_EQ(accepted, oracle_accepted) << std::hex << half;
    }
    if (accepted) {
      ASSERT_EQ(difference(), "") << std::hex << half;
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0U);
}

}  // namespace
}  // namespace tpu::model
