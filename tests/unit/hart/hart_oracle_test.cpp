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
#include "random_program.hpp"
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
constexpr uint32_t kDataMiddle = kData + kDataSize / 2;  // in kBaseRegister

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
