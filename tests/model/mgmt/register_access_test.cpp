// The control hart's own register blocks: each register can be accessed as its table says, and
// nothing else can.
#include <gtest/gtest.h>

#include "mgmt_bench.hpp"
#include "tpu/spec/console_table.hpp"
#include "tpu/spec/core_page_table.hpp"
#include "tpu/spec/gsync_table.hpp"
#include "tpu/spec/hart_map.h"
#include "tpu/spec/hostdma_table.hpp"
#include "tpu/spec/infeed_table.hpp"
#include "tpu/spec/irq_table.hpp"
#include "tpu/spec/sysctl_regs.hpp"
#include "tpu/spec/sysctl_table.hpp"
#include "tpu/spec/timer_regs.hpp"
#include "tpu/spec/timer_table.hpp"

namespace tpu::model {
namespace {

struct Block {
  uint32_t base;
  std::span<const spec::RegisterRow> rows;
};

// To write what can be written would start transfers and barriers.
void expect_table(Mgmt& mgmt, const Block& block) {
  const spec::RegisterIndex index = spec::register_index(block.rows);
  for (uint32_t offset = 0; offset < spec::kRegisterBlockBytes; offset += 4) {
    const uint8_t number = index[offset / 4];
    const spec::RegisterRow* const row =
        number == spec::kNoRegister ? nullptr : &block.rows[number];
    const bool readable = row != nullptr && row->readable();
    SCOPED_TRACE(testing::Message() << std::hex << block.base + offset << " "
                                    << (row != nullptr ? row->name : "none"));
    uint32_t seen = 0;
    EXPECT_EQ(mgmt.debug_read(block.base + offset,
                              std::span(reinterpret_cast<uint8_t*>(&seen), sizeof seen)),
              readable);
    uint32_t value = 0;
    EXPECT_EQ(mgmt.bus_register(block.base + offset, false, value), readable);
    if (readable && !row->constant && !row->handles(spec::kHandlesValue)) {
      EXPECT_EQ(value, row->reset);
    }
    if (row == nullptr || !row->writable()) {
      EXPECT_FALSE(mgmt.bus_register(block.base + offset, true, value));
    }
  }
}

TEST(RegisterAccess, HartSeesTheTables) {
  MgmtBench bench;
  bench.call([&] {
    for (const Block& block : {Block{TPU_HART_SYSCTL_BASE, spec::sysctl::kTable},
                               Block{TPU_HART_IRQ_BASE, spec::irq::kTable},
                               Block{TPU_HART_HOSTDMA_BASE, spec::hostdma::kTable},
                               Block{TPU_HART_GSYNC_BASE, spec::gsync::kTable},
                               Block{TPU_HART_INFEED_BASE, spec::infeed::kTable},
                               Block{TPU_HART_CONSOLE_BASE, spec::console::kTable}}) {
      expect_table(*bench.mgmt[1], block);
    }
  });
}

TEST(RegisterAccess, DebuggerSeesTheTimeAndChangesNothing) {
  MgmtBench bench;
  bench.pass(1000);
  bench.call([&] {
    Mgmt& mgmt = *bench.mgmt[0];
    const auto look = [&](uint32_t offset) {
      uint32_t value = 0;
      EXPECT_TRUE(mgmt.debug_read(TPU_HART_TIMER_BASE + offset,
                                  std::span(reinterpret_cast<uint8_t*>(&value), sizeof value)));
      return value;
    };
    EXPECT_EQ(look(spec::timer::kTimeLo), static_cast<uint32_t>(now_cycles()));
    EXPECT_EQ(look(spec::timer::kTimeHi), 0U);
    uint32_t sources = 5;
    EXPECT_TRUE(mgmt.bus_register(TPU_HART_IRQ_BASE + spec::irq::kEnable, true, sources));
    EXPECT_TRUE(mgmt.bus_register(TPU_HART_IRQ_BASE + spec::irq::kRaise, true, sources));
    uint32_t taken = 0;
    const uint32_t take = TPU_HART_IRQ_BASE + spec::irq::kTake;
    EXPECT_TRUE(mgmt.debug_read(take, std::span(reinterpret_cast<uint8_t*>(&taken), 4)));
    EXPECT_EQ(taken, 5U);
    EXPECT_TRUE(mgmt.bus_register(take, false, taken));
    EXPECT_EQ(taken, 5U);
    EXPECT_TRUE(mgmt.bus_register(take, false, taken));
    EXPECT_EQ(taken, 0U);
  });
}

// The two tables of one page: what one side writes the other reads.
TEST(RegisterAccess, HostAndHartShareTheirPage) {
  for (const spec::RegisterRow& host : spec::core_page::kTable) {
    for (const spec::RegisterRow& hart : spec::sysctl::kTable) {
      if (host.offset == hart.offset) {
        EXPECT_EQ(host.name, hart.name);
        EXPECT_EQ(host.count, hart.count) << host.name;
        EXPECT_NE(host.writable(), hart.writable()) << host.name << ": exactly one side writes";
      }
    }
  }
  MgmtBench bench;
  bench.write_page(1, spec::core_page::kAbort, 99);
  EXPECT_EQ(bench.read_page(1, spec::core_page::kAbort), 0xFFFFFFFFU);
  bench.call([&] {
    uint32_t value = 0;
    EXPECT_TRUE(
        bench.mgmt[1]->bus_register(TPU_HART_SYSCTL_BASE + spec::sysctl::kAbort, false, value));
    EXPECT_EQ(value, 99U);
    value = 7;
    EXPECT_TRUE(bench.mgmt[1]->bus_register(
        TPU_HART_SYSCTL_BASE + spec::sysctl::kFaultRecord + 33 * 4, true, value));
  });
  EXPECT_EQ(bench.read_page(1, spec::core_page::kFaultRecord + 33 * 4), 7U);
}

}  // namespace
}  // namespace tpu::model
