// Control processor and PCIe endpoint: registers, boot of a hart, host DMA with CRC and MSI,
// barrier and abort with their times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "file/crc32c.hpp"
#include "mgmt_bench.hpp"
#include "tpu/spec/chip_page_regs.hpp"
#include "tpu/spec/gsync_regs.hpp"
#include "tpu/spec/hostdma_regs.hpp"
#include "tpu/spec/rings.h"
#include "tpu/spec/seq_regs.hpp"
#include "tpu/spec/sysctl_regs.hpp"
#include "tpu/spec/timer_regs.hpp"

namespace tpu::model {
namespace {

namespace chip_page = spec::chip_page;
namespace core_page = spec::core_page;
namespace dma = spec::hostdma;
namespace gsync = spec::gsync;

constexpr uint32_t kSysctl = TPU_HART_SYSCTL_BASE;
constexpr uint64_t kHost = ArenaMemory::kBase;

uint32_t ctx(uint32_t index, uint32_t reg) {
  return TPU_HART_HOSTDMA_BASE + index * dma::kStartStride + reg;
}

void set_transfer(HartProgram& program, uint32_t index, uint64_t host, uint32_t local,
                  uint32_t bytes) {
  program.store(ctx(index, dma::kHostLo), static_cast<uint32_t>(host));
  program.store(ctx(index, dma::kHostHi), 0);
  program.store(ctx(index, dma::kLocalLo), local);
  program.store(ctx(index, dma::kLocalHi), 0);
  program.store(ctx(index, dma::kLenLo), bytes);
  program.store(ctx(index, dma::kLenHi), 0);
}

void send_event(HartProgram& program) {
  program.store(kSysctl + spec::sysctl::kMsi, chip_page::kMsiEvent);
}

TEST(Pcie, ReadsChipPageAndWaitsTheRoundTrip) {
  MgmtBench bench;
  EXPECT_EQ(bench.read32(0, chip_page::kMagic), chip_page::kMagicTpub);
  EXPECT_EQ(bench.read32(3, chip_page::kChipId), 3U | 1U << 8 | 1U << 16);
  EXPECT_EQ(bench.read32(1, chip_page::kCores), 2U);
  EXPECT_EQ(bench.read32(1, chip_page::kHbmMib), 16U * 1024);
  EXPECT_EQ(bench.read32(1, chip_page::kBoardHashHi), 0x12345678U);
  EXPECT_EQ(bench.read32(1, 0x6C), 0xFFFFFFFFU);
  EXPECT_EQ(bench.read32(1, bench.page(0, 0x0F0)), 0xFFFFFFFFU);
  const uint64_t before = bench.now();
  bench.read32(2, chip_page::kMagic);
  EXPECT_EQ(bench.now() - before,
            2 * spec::cycles_from_ns(bench.params, bench.params.pcie.latency_ns));
}

// Whichever core comes first in a cycle.
TEST(Pcie, EccLogOfACycleIsInOrder) {
  MgmtBench bench;
  PcieEndpoint& chip = bench.endpoint(1);
  const auto lows = [&](uint32_t first, uint32_t count) {
    std::vector<uint32_t> all;
    for (uint32_t i = first; i < first + count; ++i) {
      const uint32_t at = i % chip_page::kEccLogEntries * chip_page::kEccLogLoStride;
      all.push_back(bench.read32(1, chip_page::kEccLogLo + at) +
                    (bench.read32(1, chip_page::kEccLogHi + at) & chip_page::kEccLogHiCoreMask));
    }
    return all;
  };
  bench.call([&] {
    chip.ecc_read(1, 0x40, true);
    chip.ecc_read(0, 0x80, true);
    chip.ecc_read(1, 0x20, true);
    chip.ecc_read(0, 0x60, true);
  });
  bench.pass(1);
  bench.call([&] { chip.ecc_read(0, 0x10, true); });
  constexpr uint32_t kOne = chip_page::kEccLogHiCoreMask;
  EXPECT_EQ(lows(0, 5), (std::vector<uint32_t>{0x60, 0x80, kOne + 0x20, kOne + 0x40, 0x10}));
  bench.call([&] {  // more than the log has
    for (uint32_t i = 0; i < chip_page::kEccLogEntries + 4; ++i) {
      chip.ecc_read(0, 0x1000 - 4 * i, true);
    }
  });
  const std::vector<uint32_t> left = lows(5 + 4, chip_page::kEccLogEntries);
  EXPECT_TRUE(std::ranges::is_sorted(left));
  EXPECT_EQ(bench.read32(1, chip_page::kEccLogged), 5 + chip_page::kEccLogEntries + 4);
}

TEST(Pcie, ReadDoesNotPassPostedWrites) {
  MgmtBench bench;
  bench.write_page(1, core_page::kHostAbi, 0x10000);
  bench.write_page(1, core_page::kHostAbi, 0x20000);
  EXPECT_EQ(bench.read_page(1, core_page::kHostAbi), 0x20000U);
  bench.write_page(1, core_page::kFwAbi, 5);  // the device's
  EXPECT_EQ(bench.read_page(1, core_page::kFwAbi), 0U);
}

TEST(Mgmt, HartStartsInRomAndSendsAnEvent) {
  MgmtBench bench;
  HartProgram program;
  program.copy(kSysctl + core_page::kFwBuild, kSysctl + spec::sysctl::kCoreId);
  program.store(kSysctl + core_page::kFwState, core_page::kStateHandshake);
  send_event(program);
  program.sleep_forever();
  bench.start(5, program);
  EXPECT_TRUE(bench.run());
  EXPECT_EQ(bench.take_msi(2), 1U << 3);  // chip 2, its core 1, event
  EXPECT_EQ(bench.read_page(5, core_page::kFwState), core_page::kStateHandshake);
  EXPECT_EQ(bench.read_page(5, core_page::kFwBuild), 5U | 8U << 12 | 1U << 24);
  EXPECT_FALSE(bench.run());  // asleep: quiescent
}

class RegisterSink final : public ProbeSink {
 public:
  void device_register(const RegisterEvent& event) override { events.push_back(event); }
  // Values that the register took.
  std::vector<uint32_t> values(RegisterEvent::Block block, uint32_t index, uint32_t offset) const {
    std::vector<uint32_t> found;
    for (const RegisterEvent& event : events) {
      if (event.block == block && event.index == index && event.offset == offset) {
        found.push_back(event.value);
      }
    }
    return found;
  }
  std::vector<RegisterEvent> events;
};

TEST(Mgmt, RegistersBetweenHostAndHartAreEvents) {
  using Block = RegisterEvent::Block;
  MgmtBench bench;
  RegisterSink sink;
  bench.call([&] { bench.probes.add(sink, {ProbeEvent::kRegister}); });
  HartProgram program;
  program.enable_irq(spec::irq::kDoorbell);
  program.store(kSysctl + core_page::kCmdFetched, 7);
  send_event(program);
  program.sleep_forever();
  bench.start(5, program);
  bench.write_page(5, core_page::kCmdTail, 9);
  EXPECT_TRUE(bench.run());
  EXPECT_THAT(sink.values(Block::kCorePage, 5, core_page::kCmdTail), ::testing::ElementsAre(9));
  EXPECT_THAT(sink.values(Block::kCorePage, 5, core_page::kCmdFetched), ::testing::ElementsAre(7));
  EXPECT_THAT(sink.values(Block::kIrq, 5, spec::irq::kPending),
              ::testing::Contains(spec::irq::kDoorbell));
  EXPECT_THAT(sink.values(Block::kIrq, 5, spec::irq::kEnable),
              ::testing::Contains(spec::irq::kDoorbell));
  EXPECT_THAT(sink.values(Block::kChipPage, 2, chip_page::kIrqPending),
              ::testing::ElementsAre(1U << 3));
}

TEST(Mgmt, LoadWindowIsClosedWhileTheHartRuns) {
  MgmtBench bench;
  HartProgram program;
  program.sleep_forever();
  bench.start(0, program);
  bench.run();
  EXPECT_EQ(bench.read32(0, chip_page::kErrCount), 0U);
  bench.start(0, program);
  EXPECT_EQ(bench.read32(0, chip_page::kErrCount), 1U);
  bench.write_page(0, core_page::kCoreCtrl, core_page::kCoreCtrlCoreResetMask);
  EXPECT_EQ(bench.read_page(0, core_page::kCoreCtrl), 0U);
  bench.start(0, program);
  EXPECT_EQ(bench.read32(0, chip_page::kErrCount), 1U);
}

TEST(Mgmt, SleepingHartCostsNoInstructions) {
  MgmtBench bench;
  HartProgram program;
  program.enable_irq(spec::irq::kTimer);
  program.sleep_forever();
  bench.start(0, program);
  bench.run();
  uint64_t instructions = 0;
  uint64_t deltas = 0;
  bench.call([&] {
    instructions = bench.mgmt[0]->hart().instret();
    deltas = sc_core::sc_delta_count();
  });
  bench.pass(10'000'000);
  bench.call([&] {
    EXPECT_EQ(bench.mgmt[0]->hart().instret(), instructions);
    EXPECT_LT(sc_core::sc_delta_count() - deltas, 10U);
  });
}

TEST(Mgmt, TimerWakesTheHartAtItsTime) {
  MgmtBench bench;
  HartProgram program;
  program.enable_irq(spec::irq::kTimer);
  program.store(TPU_HART_TIMER_BASE + spec::timer::kCmpLo, 50'000);
  program.store(TPU_HART_TIMER_BASE + spec::timer::kCmpHi, 0);
  program.wait_irq();
  program.copy(kSysctl + core_page::kHeartbeat, TPU_HART_TIMER_BASE + spec::timer::kTimeLo);
  send_event(program);
  program.sleep_forever();
  bench.start(0, program);
  EXPECT_FALSE(bench.run());  // a timer is no activity
  bench.pass(60'000);
  EXPECT_TRUE(bench.run());
  const uint32_t woken = bench.read_page(0, core_page::kHeartbeat);
  EXPECT_GE(woken, 50'000U);
  EXPECT_LE(woken, 50'050U);
}

// Accesses that the hart runs ahead with take the same time as those that wait for their cycle, and
// what follows them comes at its own.
TEST(Mgmt, UntimedAccessesTakeTheirTime) {
  namespace sysctl = spec::sysctl;
  constexpr uint32_t kTime = TPU_HART_TIMER_BASE + spec::timer::kTimeLo;
  constexpr int kStores = 60;  // several quanta
  MgmtBench bench;
  HartProgram program;
  const auto stores_to = [&](uint32_t address) {
    for (int i = 0; i < kStores; ++i) {
      program.store(address, static_cast<uint32_t>(i));
    }
  };
  const auto note_time = [&](uint32_t page) { program.copy(kSysctl + page, kTime); };
  note_time(sysctl::kFwAbi);
  stores_to(kSysctl + sysctl::kEpoch);  // the host may look at it
  note_time(sysctl::kFwBuild);
  stores_to(TPU_HART_HOSTDMA_BASE + spec::hostdma::kPattern);
  note_time(sysctl::kCmdFetched);
  stores_to(TPU_HART_SEQ_BASE + spec::seq::kProgramLo);
  note_time(sysctl::kCplTail);
  send_event(program);
  program.sleep_forever();
  bench.start(0, program);
  ASSERT_TRUE(bench.run());
  const uint32_t begin = bench.read_page(0, core_page::kFwAbi);
  const uint32_t timed = bench.read_page(0, core_page::kFwBuild) - begin;
  EXPECT_GT(timed, kStores * static_cast<uint32_t>(bench.params.mgmt.mmio_cycles));
  EXPECT_EQ(bench.read_page(0, core_page::kCmdFetched) - begin, 2 * timed);
  EXPECT_EQ(bench.read_page(0, core_page::kCplTail) - begin, 3 * timed);
  EXPECT_EQ(bench.cores[0]->seq.written[spec::seq::kProgramLo].size(), kStores);
}

// An access to a part of a register fails: the register that holds the bytes does not see it.
TEST(Mgmt, AccessesToAPartOfARegisterAreTimed) {
  MgmtBench bench;
  bench.call([&] {
    const auto untimed = [&](uint32_t address) {
      return bench.mgmt[0]->untimed({.addr = address, .data = 0, .size_bytes = 4, .write = true});
    };
    for (const uint32_t address : {TPU_HART_SEQ_BASE + spec::seq::kProgramLo,
                                   TPU_HART_HOSTDMA_BASE + spec::hostdma::kPattern}) {
      EXPECT_TRUE(untimed(address)) << std::hex << address;
      for (uint32_t part = 1; part < 4; ++part) {
        EXPECT_FALSE(untimed(address + part)) << std::hex << address + part;
      }
    }
  });
}

TEST(HostDma, FetchesChecksAndPostsInOrder) {
  MgmtBench bench;
  std::array<uint32_t, 32> entries{};  // two command entries, the second one corrupt
  for (uint32_t i = 0; i < 32; ++i) {
    entries[i] = 0x1000 + i;
  }
  entries[15] = spec::crc32c(std::as_bytes(std::span(entries).first(15)));
  bench.memory.put(kHost, entries);
  HartProgram program;
  program.enable_irq(spec::irq::kHostDma);
  set_transfer(program, 0, kHost, TPU_HART_DTCM_BASE + 0x1000, sizeof entries);
  program.store(ctx(0, dma::kStart), dma::kStartEntriesMask | dma::kStartCrcMask);
  program.wait_irq();
  program.copy(kSysctl + core_page::kEpoch, ctx(0, dma::kEntryBad));
  program.copy(kSysctl + core_page::kFwBuild, ctx(0, dma::kCrcOut));
  // The completion takes its data at START; the store behind it does not change them.
  set_transfer(program, 1, kHost + 0x200, TPU_HART_DTCM_BASE + 0x1000, 32);
  program.store(ctx(1, dma::kStart), dma::kDirToHost | dma::kStartMsiMask);
  program.store(TPU_HART_DTCM_BASE + 0x1000, 0xDEAD);
  program.sleep_forever();
  bench.start(0, program);
  EXPECT_TRUE(bench.run());
  EXPECT_EQ(bench.take_msi(0), 1U << chip_page::kMsiCompletion);
  EXPECT_EQ(bench.memory.get<uint32_t>(kHost + 0x200), 0x1000U);
  EXPECT_EQ(bench.memory.get<uint32_t>(kHost + 0x21C), 0x1007U);
  EXPECT_EQ(bench.memory.get<uint32_t>(kHost + 0x220), 0U);
  EXPECT_EQ(bench.read_page(0, core_page::kEpoch), 2U);
  EXPECT_EQ(bench.read_page(0, core_page::kFwBuild),
            spec::crc32c(std::as_bytes(std::span(entries))));
}

TEST(HostDma, CopiesToHbmAndBackAtTheLinksSpeed) {
  MgmtBench bench;
  constexpr uint32_t kBytes = 256 * 1024;
  for (uint32_t i = 0; i < kBytes; i += 4) {
    bench.memory.put(kHost + i, i * 7);
  }
  HartProgram program;
  program.enable_irq(spec::irq::kHostDma);
  set_transfer(program, 4, kHost, 0x5001, kBytes);
  program.copy(kSysctl + core_page::kCmdFetched, TPU_HART_TIMER_BASE + spec::timer::kTimeLo);
  program.store(ctx(4, dma::kStart), dma::kDirFromHost | dma::kSpaceHbm << dma::kStartSpaceShift);
  program.wait_irq();
  program.copy(kSysctl + core_page::kCplTail, TPU_HART_TIMER_BASE + spec::timer::kTimeLo);
  set_transfer(program, 5, kHost + kBytes, 0x5001, kBytes);
  program.store(ctx(5, dma::kStart),
                dma::kDirToHost | dma::kSpaceHbm << dma::kStartSpaceShift | dma::kStartMsiMask);
  program.sleep_forever();
  bench.start(2, program);
  EXPECT_TRUE(bench.run());
  for (uint32_t i = 0; i < kBytes; i += 4) {
    ASSERT_EQ(bench.memory.get<uint32_t>(kHost + kBytes + i), i * 7);
  }
  const uint32_t taken =
      bench.read_page(2, core_page::kCplTail) - bench.read_page(2, core_page::kCmdFetched);
  const auto wire = static_cast<double>(kBytes * bench.params.core.clock_mhz /
                                        (bench.params.pcie.gbps_per_chip * 1000));
  const auto latency =
      static_cast<double>(2 * spec::cycles_from_ns(bench.params, bench.params.pcie.latency_ns));
  EXPECT_NEAR(taken, wire + latency, 0.01 * wire);
}

TEST(HostDma, RefusesForeignHostAddressesAndBadRanges) {
  MgmtBench bench;
  HartProgram program;
  program.enable_irq(spec::irq::kHostDma);
  set_transfer(program, 0, 0x10, TPU_HART_DTCM_BASE, 64);
  program.store(ctx(0, dma::kStart), dma::kDirFromHost);
  program.wait_irq();
  program.copy(kSysctl + core_page::kEpoch, ctx(0, dma::kStatus));
  set_transfer(program, 3, kHost, TPU_HART_DTCM_BASE + TPU_HART_DTCM_BYTES - 4, 64);
  program.store(ctx(3, dma::kStart), dma::kDirFromHost);
  program.wait_irq();
  program.copy(kSysctl + core_page::kHeartbeat, ctx(3, dma::kStatus));
  send_event(program);
  program.sleep_forever();
  bench.start(0, program);
  EXPECT_TRUE(bench.run());
  EXPECT_EQ(bench.read_page(0, core_page::kEpoch), dma::kErrHostAddr << dma::kStatusErrorShift);
  EXPECT_EQ(bench.read_page(0, core_page::kHeartbeat), dma::kErrRange << dma::kStatusErrorShift);
  EXPECT_EQ(bench.read32(0, chip_page::kErrCount), 1U);
}

TEST(HostDma, PutsSlotTablesIntoTheBanksAndCopiesBetweenCores) {
  MgmtBench bench;
  bench.memory.put<uint64_t>(kHost, 0x1122334455667788);
  HartProgram program;
  program.enable_irq(spec::irq::kHostDma);
  set_transfer(program, 2, kHost, TPU_SLOT_BANK_BYTES + 32, 8);
  program.store(ctx(2, dma::kStart), dma::kDirFromHost | dma::kSpaceSlots << dma::kStartSpaceShift);
  program.wait_irq();
  set_transfer(program, 4, 0, 0x40, 16);
  program.store(ctx(4, dma::kPattern), 0xABCD);
  program.store(ctx(4, dma::kStart), dma::kDirFill | dma::kSpaceHbm << dma::kStartSpaceShift);
  program.wait_irq();
  set_transfer(program, 4, 0x40, 0x80, 16);
  program.store(ctx(4, dma::kStart), dma::kDirD2d | 7U << dma::kStartPeerShift);
  program.wait_irq();
  send_event(program);
  program.sleep_forever();
  bench.start(0, program);
  EXPECT_TRUE(bench.run());
  bench.call([&] {
    uint64_t entry = 0;
    std::memcpy(&entry, bench.cores[0]->slots.data() + TPU_SLOT_BANK_BYTES + 32, sizeof entry);
    EXPECT_EQ(entry, 0x1122334455667788U);
    uint32_t word = 0;
    bench.fabric.hbm[7]->read(0x8C, {reinterpret_cast<uint8_t*>(&word), sizeof word});
    EXPECT_EQ(word, 0xABCDU);
  });
}

// All other cores are on other boards. What is sent there lands late.
class FarCores : public IciIf, public CutIf {
 public:
  explicit FarCores(IciIf& of) : of_(of) {}
  uint32_t cores() const override { return of_.cores(); }
  void add_path(uint32_t /*from*/, uint32_t /*to*/, Flow& /*flow*/) const override {}
  uint64_t data_latency(uint32_t from, uint32_t to) const override {
    return of_.data_latency(from, to);
  }
  uint64_t control_latency(uint32_t from, uint32_t to) const override {
    return of_.control_latency(from, to);
  }
  RemoteIf& peer(uint32_t core) override { return of_.peer(core); }
  CutIf* cut() override { return this; }
  bool behind_cut(uint32_t /*core*/) const override { return true; }

  uint64_t open(const RemoteWrite& /*write*/, uint64_t /*bytes*/, uint64_t /*fixed*/,
                Answered /*answered*/) override {
    return 0;
  }
  uint64_t open_copy(uint32_t /*from*/, uint32_t /*to*/, uint64_t /*bytes*/) override { return 0; }
  void deliver(CutDelivery delivery, Answered answered) override {
    sent = std::move(delivery);
    answered_ = std::move(answered);
  }
  void ask(uint32_t /*from*/, uint32_t /*to*/, Told /*told*/) override {}
  void land() {
    sent->copy();
    answered_({});
  }

  std::optional<CutDelivery> sent;

 private:
  IciIf& of_;
  Answered answered_;
};

// With a fault file, a bit that flips behind the last byte is not in the copy.
TEST(HostDma, ACopyToAnotherBoardHasWhatWasSent) {
  MgmtBench bench;
  FarCores far(*bench.ici);
  bench.call([&] {
    bench.fabric.ici = &far;
    bench.hbm[0]->bank(0).watch([](uint64_t /*address*/, bool /*corrected*/) {});
    bench.fabric.hbm[0]->fill(0x40, 16, 0xABCD);
  });
  HartProgram program;
  set_transfer(program, 4, 0x40, 0x80, 16);
  program.store(ctx(4, dma::kStart), dma::kDirD2d | 7U << dma::kStartPeerShift);
  program.sleep_forever();
  bench.start(0, program);
  while (!far.sent) {
    bench.pass(100);
  }
  bench.call([&] {
    bench.fabric.hbm[0]->fill(0x40, 16, 0xDEAD);
    far.land();
    uint32_t word = 0;
    bench.fabric.hbm[7]->read(0x8C, {reinterpret_cast<uint8_t*>(&word), sizeof word});
    EXPECT_EQ(word, 0xABCDU);
  });
  bench.pass(1000);
}

// Core c arrives at the barrier; stores the time of its arrival and of its release.
HartProgram barrier_program(uint32_t tag, uint32_t mask, uint32_t spin) {
  HartProgram program;
  program.enable_irq(spec::irq::kBarrier | spec::irq::kAbort);
  program.store(TPU_HART_GSYNC_BASE + gsync::kTag, tag);
  program.store(TPU_HART_GSYNC_BASE + gsync::kMask, mask);
  program.store(TPU_HART_GSYNC_BASE + gsync::kStep, 0);
  for (uint32_t i = 0; i < spin; ++i) {
    program.raw(rv::kNop);
  }
  program.copy(kSysctl + core_page::kCmdFetched, TPU_HART_TIMER_BASE + spec::timer::kTimeLo);
  program.store(TPU_HART_GSYNC_BASE + gsync::kArrive, gsync::kKindStep);
  program.wait_irq();
  program.copy(kSysctl + core_page::kCplTail, TPU_HART_TIMER_BASE + spec::timer::kTimeLo);
  program.copy(kSysctl + core_page::kEpoch, TPU_HART_GSYNC_BASE + gsync::kState);
  program.copy(kSysctl + core_page::kFwBuild, TPU_HART_GSYNC_BASE + gsync::kAbortInfo);
  program.sleep_forever();
  return program;
}

TEST(Gsync, BarrierTakesTwoHopsThereAndTwoBack) {
  MgmtBench bench;
  for (uint32_t core = 0; core < 8; ++core) {
    bench.start(core, barrier_program(9, 0xFF, core == 7 ? 2000 : 10));
  }
  EXPECT_FALSE(bench.run());
  const uint32_t last = bench.read_page(7, core_page::kCmdFetched);
  const auto hop =
      static_cast<uint32_t>(spec::cycles_from_ns(bench.params, bench.params.ici.control_hop_ns));
  for (uint32_t core = 0; core < 8; ++core) {
    EXPECT_EQ(bench.read_page(core, core_page::kEpoch), gsync::kStateReleasedMask);
    EXPECT_LT(bench.read_page(core, core_page::kCmdFetched), last + 1);
  }
  // Core 7 sits on the far chip; some tens of cycles go to its own instructions and bus accesses.
  const uint32_t taken = bench.read_page(7, core_page::kCplTail) - last;
  EXPECT_GE(taken, 4 * hop);
  EXPECT_LE(taken, 4 * hop + 60);
}

TEST(Gsync, TwoGangsAreApart) {
  MgmtBench bench;
  for (const uint32_t core : {1U, 2U}) {
    bench.start(core, barrier_program(3, 0b0110, 10));
  }
  for (const uint32_t core : {0U, 3U}) {
    bench.start(core, barrier_program(4, 0b1001, 10));
  }
  EXPECT_FALSE(bench.run());
  for (uint32_t core = 0; core < 4; ++core) {
    EXPECT_EQ(bench.read_page(core, core_page::kEpoch), gsync::kStateReleasedMask);
  }
}

TEST(Gsync, DifferentOrderIsAMismatchOnAllCores) {
  MgmtBench bench;
  bench.start(0, barrier_program(3, 0b11, 10));
  bench.start(1, barrier_program(4, 0b11, 10));
  EXPECT_FALSE(bench.run());
  for (uint32_t core = 0; core < 2; ++core) {
    EXPECT_EQ(bench.read_page(core, core_page::kEpoch), gsync::kStateAbortedMask);
    EXPECT_EQ(bench.read_page(core, core_page::kFwBuild) >> gsync::kAbortInfoCodeShift,
              gsync::kCodeMismatch);
  }
}

TEST(Gsync, FaultOfOneCoreStopsTheGang) {
  MgmtBench bench;
  for (uint32_t core = 0; core < 3; ++core) {
    bench.start(core, barrier_program(7, 0b1111, 10));
  }
  bench.start(3, barrier_program(8, 0b1000, 10));  // busy with a gang of its own
  EXPECT_FALSE(bench.run());
  EXPECT_EQ(bench.read_page(0, core_page::kEpoch), 0U);
  bench.call([&] { bench.cores[2]->faulted.write(true); });
  EXPECT_FALSE(bench.run());
  for (uint32_t core = 0; core < 3; ++core) {
    EXPECT_EQ(bench.read_page(core, core_page::kEpoch), gsync::kStateAbortedMask) << core;
    const uint32_t info = bench.read_page(core, core_page::kFwBuild);
    EXPECT_EQ(info,
              2U << gsync::kAbortInfoOriginShift | gsync::kCodeFault << gsync::kAbortInfoCodeShift);
    bench.call([&] { EXPECT_EQ(bench.cores[core]->seq.written[spec::seq::kAbort].size(), 1U); });
  }
  // Who comes late is told by the root.
  bench.write_page(3, core_page::kCoreCtrl, core_page::kCoreCtrlCoreResetMask);
  bench.start(3, barrier_program(7, 0b1111, 10));
  EXPECT_FALSE(bench.run());
  EXPECT_EQ(bench.read_page(3, core_page::kEpoch), gsync::kStateAbortedMask);
}

// A tag is a whole launch id: 65,536 launches later, or after the ids have wrapped, it is another
// gang that nobody aborted.
TEST(Gsync, OnlyTheAbortedGangIsRefused) {
  MgmtBench bench;
  HartProgram abort;
  abort.enable_irq(spec::irq::kAbort);
  abort.store(TPU_HART_GSYNC_BASE + gsync::kTag, 7);
  abort.store(TPU_HART_GSYNC_BASE + gsync::kMask, 1);
  abort.store(TPU_HART_GSYNC_BASE + gsync::kAbortTag, 7);
  abort.store(TPU_HART_GSYNC_BASE + gsync::kAbortMask, 1);
  abort.store(TPU_HART_GSYNC_BASE + gsync::kAbort, gsync::kCodeHost);
  abort.wait_irq();
  abort.copy(kSysctl + core_page::kEpoch, TPU_HART_GSYNC_BASE + gsync::kState);
  abort.sleep_forever();
  const auto state_after = [&](const HartProgram& program) {
    bench.write_page(0, core_page::kCoreCtrl, core_page::kCoreCtrlCoreResetMask);
    bench.start(0, program);
    EXPECT_FALSE(bench.run());
    return bench.read_page(0, core_page::kEpoch);
  };
  EXPECT_EQ(state_after(abort), gsync::kStateAbortedMask);
  EXPECT_EQ(state_after(barrier_program(7, 1, 10)), gsync::kStateAbortedMask);
  EXPECT_EQ(state_after(barrier_program(7 + 0x10000, 1, 10)), gsync::kStateReleasedMask);
  EXPECT_EQ(state_after(barrier_program(7, 1, 10)), gsync::kStateAbortedMask);
  EXPECT_EQ(state_after(barrier_program(7 + gsync::kForgetAge, 1, 10)), gsync::kStateReleasedMask);
  EXPECT_EQ(state_after(barrier_program(7, 1, 10)), gsync::kStateReleasedMask) << "ids wrapped";
}

TEST(Mgmt, DeadHartLeavesARecordAndTellsTheChip) {
  MgmtBench bench;
  HartProgram program;
  program.li(6, 0x70000000);  // the trap handler's address: nothing there, so the handler traps too
  program.raw(rv::csrrw(0, 0x305, 6));
  program.raw(rv::kEbreak);
  bench.start(4, program);
  EXPECT_TRUE(bench.run());
  bench.run();
  EXPECT_EQ(bench.read_page(4, core_page::kFwState), core_page::kStateDead);
  EXPECT_EQ(bench.read_page(4, core_page::kFaultSeq), 1U);
  EXPECT_EQ(bench.read_page(4, core_page::kFaultRecord + 4) & 0xFF, TPU_FAULT_FW_TRAP);
  EXPECT_EQ(bench.read_page(4, core_page::kFaultRecord + 28), TPU_OP_NONE);  // op_id
  EXPECT_EQ(bench.take_msi(2), 1U << chip_page::kMsiEvent | 1U << chip_page::kMsiChip);
}

TEST(Mgmt, HartThatNeverSleepsIsLost) {
  MgmtBench bench;
  HartProgram program;
  program.raw(rv::kNop);
  program.raw(rv::jal(0, 0));
  bench.start(1, program);
  while (bench.run()) {  // ends: the hart is stopped
    bench.take_msi(0);
  }
  EXPECT_GE(bench.now(),
            static_cast<uint64_t>(bench.params.mgmt.watchdog_us * bench.params.core.clock_mhz));
  EXPECT_EQ(bench.read_page(1, core_page::kFwState), core_page::kStateDead);
  EXPECT_EQ(bench.read_page(1, core_page::kFaultRecord + 56), TPU_HART_ITCM_BASE + 4);  // mepc
  EXPECT_EQ(bench.read_page(1, core_page::kFaultRecord + 52), TPU_STATUS_TIMEOUT);      // detail
  EXPECT_NE(bench.read32(0, chip_page::kIrqPending) & 1U << chip_page::kMsiChip, 0U);
}

// Thousands of small transfers in a row leave no time to sleep.
TEST(Mgmt, HartThatSaysThatItWorksIsNot) {
  MgmtBench bench;
  HartProgram program;
  program.li(7, 40);
  program.li(8, 0x40000);  // the begin of the outer loop
  program.raw(rv::addi(8, 8, -1));
  program.raw(rv::bne(8, 0, -4));
  program.store(kSysctl + core_page::kHeartbeat, 1);
  program.raw(rv::addi(7, 7, -1));
  program.raw(rv::bne(7, 0, -4 * 10));
  program.sleep_forever();
  bench.start(1, program);
  EXPECT_FALSE(bench.run()) << "an interrupt: it was taken for lost";
  EXPECT_GT(bench.now(),
            static_cast<uint64_t>(2 * bench.params.mgmt.watchdog_us * bench.params.core.clock_mhz));
  EXPECT_NE(bench.read_page(1, core_page::kFwState), core_page::kStateDead);
}

TEST(HostPort, SecondBoardInAProcessIsRefused) {
  MgmtBench bench;
  EXPECT_THROW(MgmtBench{}, KernelError);
  EXPECT_EQ(bench.read32(0, chip_page::kMagic), chip_page::kMagicTpub);
}

TEST(HostPort, AJobMakesCallsThatAreAPartOfIt) {
  MgmtBench bench;
  const auto this_thread = [] { return std::this_thread::get_id(); };
  std::thread::id outer;
  std::thread::id inner;
  bench.call([&] {
    outer = this_thread();
    bench.call([&] { inner = this_thread(); });
    EXPECT_EQ(bench.read32(0, chip_page::kMagic), chip_page::kMagicTpub);  // time passes
    EXPECT_THROW(bench.call([] { throw std::out_of_range("of the inner call"); }),
                 std::out_of_range);
  });
  EXPECT_EQ(inner, outer);
  EXPECT_NE(outer, this_thread());
  bool inner_came_back = false;
  EXPECT_THROW(bench.call([&] {
    bench.call([] { sc_core::sc_spawn([] { throw std::runtime_error("engine broke"); }); });
    bench.pass(1);
    inner_came_back = true;
  }),
               KernelError);
  EXPECT_FALSE(inner_came_back);
}

TEST(HostPort, ErrorInTheKernelEndsAllLaterCalls) {
  MgmtBench bench;
  EXPECT_THROW(bench.call([] { throw std::out_of_range("a job's error goes to its caller"); }),
               std::out_of_range);
  EXPECT_EQ(bench.read32(0, chip_page::kMagic), chip_page::kMagicTpub);
  bench.call([] { sc_core::sc_spawn([] { throw std::runtime_error("engine broke"); }); });
  EXPECT_THROW(bench.run(); bench.pass(1), KernelError);
  try {
    bench.now();
    FAIL();
  } catch (const KernelError& error) {
    EXPECT_NE(std::string(error.what()).find("engine broke"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tpu::model
