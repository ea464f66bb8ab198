// Registers by name.
#include "registers/register_name.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tpu/spec/hart_map.h"
#include "tpu/spec/hostdma_regs.hpp"
#include "tpu/spec/seq_regs.hpp"

namespace tpu::spec {
namespace {

std::string name_refusal(const std::string& text) {
  try {
    hart_address(text);
  } catch (const RegisterNameError& error) {
    return error.what();
  }
  return "taken";
}

TEST(RegisterName, IsFoundByItsAddressAndBack) {
  for (const RegisterInfo& info : kHartRegisters) {
    for (uint32_t i = 0; i < info.count; ++i) {
      const uint32_t address = info.address + i * info.stride;
      const std::string name = register_name(kHartRegisters, address);
      EXPECT_EQ(hart_address(name), address) << name;
    }
  }
}

TEST(RegisterName, SaysBlockNameAndNumber) {
  constexpr uint32_t kStart1 = TPU_HART_HOSTDMA_BASE + hostdma::kStart + hostdma::kStartStride;
  EXPECT_EQ(register_name(kHartRegisters, TPU_HART_SEQ_BASE + seq::kStart), "seq.START");
  EXPECT_EQ(register_name(kHartRegisters, kStart1), "hostdma.START[1]");
  EXPECT_EQ(register_name(kHartRegisters, TPU_HART_CONSOLE_BASE + 0xffc), "0x4000affc");
  EXPECT_EQ(register_name(kCorePageRegisters, 0x40), "core_page.CMD_TAIL");
}

TEST(RegisterName, ReadsNamesInAnyCaseAndNumbers) {
  EXPECT_EQ(hart_address("SEQ.start"), TPU_HART_SEQ_BASE + seq::kStart);
  EXPECT_EQ(hart_address("hostdma.START[0]"), hart_address("hostdma.START"));
  EXPECT_EQ(hart_address("0x20000010"), 0x20000010U);
  EXPECT_EQ(hart_address("16"), 16U);
}

TEST(RegisterName, RefusesWhatIsNoneAndSaysWhatThereIs) {
  using ::testing::HasSubstr;
  EXPECT_THAT(name_refusal("seq.STRT"),
              HasSubstr("unknown register 'seq.STRT': block seq has ID, "));
  EXPECT_THAT(name_refusal("sq.START"), HasSubstr("the blocks are console, fault, gsync"));
  EXPECT_THAT(name_refusal(""), HasSubstr("unknown register '': write BLOCK.NAME or an address"));
  EXPECT_THAT(name_refusal("seq"), HasSubstr("block seq has "));
  EXPECT_EQ(name_refusal("hostdma.START[6]"),
            "'hostdma.START[6]': invalid index: expected hostdma.START[0] to [5]");
  EXPECT_EQ(name_refusal("hostdma.START[x]"),
            "'hostdma.START[x]': invalid index: expected hostdma.START[0] to [5]");
  EXPECT_THAT(name_refusal("0x1000000000"), HasSubstr("expected 32 bits"));
  EXPECT_THAT(name_refusal("12ab"), HasSubstr("expected 32 bits"));
  EXPECT_EQ(name_refusal("0x20000002"), "address 0x20000002 is not a multiple of 4");
}

}  // namespace
}  // namespace tpu::spec
