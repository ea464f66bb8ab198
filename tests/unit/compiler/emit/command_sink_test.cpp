// Instructions of the sequencer that load integers.
#include "emit/command_sink.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <variant>

#include "plan/moving_address.hpp"

namespace tpu::compiler::test {
namespace {

// What a register has after the instructions.
int64_t loaded(const Listing& listing) {
  int64_t value = 0;
  for (const Item& item : listing.items) {
    const auto& insn = std::get<spec::ScalarInsn>(item);
    if (insn.op == static_cast<uint8_t>(spec::ScalarOp::kLi)) {
      value = insn.imm;
    } else {
      EXPECT_EQ(insn.op, static_cast<uint8_t>(spec::ScalarOp::kLih));
      value = static_cast<int64_t>(static_cast<uint64_t>(static_cast<uint32_t>(insn.imm)) << 32 |
                                   static_cast<uint32_t>(value));
    }
  }
  return value;
}

TEST(CommandSink, LoadsIntegersOfAllSizes) {
  const MovingAddresses none;
  for (const int64_t value :
       {int64_t{0}, int64_t{-1}, int64_t{INT32_MAX}, int64_t{INT32_MIN}, int64_t{INT32_MAX} + 1,
        int64_t{INT32_MIN} - 1, int64_t{0x1234'5678'9ABC'DEF0}, INT64_MIN, INT64_MAX}) {
    CommandSink sink(none);
    sink.load_immediate(5, value);
    EXPECT_EQ(loaded(sink.listing), value);
    EXPECT_EQ(sink.listing.items.size(), value == static_cast<int32_t>(value) ? 1u : 2u) << value;
  }
}

}  // namespace
}  // namespace tpu::compiler::test
