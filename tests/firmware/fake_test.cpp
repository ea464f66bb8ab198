// The fake cores of firmware/fake: barriers and aborts between them, checks of slot tables, and
// several instances of the firmware in one process.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <thread>
#include <vector>

#include "fake/fake_gangs.hpp"
#include "fake/firmware_on_host.hpp"
#include "mock_device.hpp"
#include "ring_host.hpp"
#include "rt/fw.h"
#include "tpu/spec/gsync_regs.h"
#include "tpu/spec/hart_map.h"
#include "tpu/spec/hostdma_regs.h"
#include "tpu/spec/seq_regs.h"

namespace tpu::test {
namespace {

using firmware::FakeCore;
using firmware::FakeGangs;

// A core with nothing but its place in gangs.
class GangCore : private firmware::FakeSurroundings, public FakeCore {
 public:
  GangCore(uint32_t core, uint32_t cores, FakeGangs& gangs)
      : FakeCore({core, cores, 1 << 20, 10}, static_cast<FakeSurroundings&>(*this)),
        core_(core),
        gangs_(gangs) {}

  void set(uint32_t offset, uint32_t value) { write(TPU_HART_GSYNC_BASE + offset, value); }
  void join(uint32_t tag, uint32_t mask) {
    set(TPU_GSYNC_TAG_OFFSET, tag);
    set(TPU_GSYNC_MASK_OFFSET, mask);
  }
  void arrive(uint32_t step, uint32_t kind = TPU_GSYNC_KIND_STEP) {
    set(TPU_GSYNC_STEP_OFFSET, step);
    set(TPU_GSYNC_ARRIVE_OFFSET, kind);
  }
  void abort_gang(uint32_t tag, uint32_t mask, uint32_t code) {
    set(TPU_GSYNC_ABORT_TAG_OFFSET, tag);
    set(TPU_GSYNC_ABORT_MASK_OFFSET, mask);
    set(TPU_GSYNC_ABORT_OFFSET, code);
  }
  bool released() const { return (state() & TPU_GSYNC_STATE_RELEASED_MASK) != 0; }
  bool aborted() const { return (state() & TPU_GSYNC_STATE_ABORTED_MASK) != 0; }
  uint32_t code() const {
    return (gsync_reg(TPU_GSYNC_ABORT_INFO_OFFSET) & TPU_GSYNC_ABORT_INFO_CODE_MASK) >>
           TPU_GSYNC_ABORT_INFO_CODE_SHIFT;
  }

 private:
  uint32_t state() const { return gsync_reg(TPU_GSYNC_STATE_OFFSET); }
  std::span<std::byte> host_bytes(uint64_t, uint64_t, bool) override { return {}; }
  std::span<std::byte> tcm_bytes(uint64_t, uint64_t) override { return {}; }
  bool hbm_holds(uint32_t, uint64_t, uint64_t) override { return false; }
  void read_hbm(uint64_t, std::span<std::byte>) override {}
  void write_hbm(uint64_t, std::span<const std::byte>) override {}
  void fill_hbm(uint64_t, uint64_t, uint32_t) override {}
  void copy_hbm(uint64_t, uint32_t, uint64_t, uint64_t) override {}
  uint64_t cycle() override { return 0; }
  uint64_t counter(uint32_t) override { return 0; }
  void send_msi(uint32_t) override {}
  void program_started() override {}
  void arrived(uint32_t kind) override { gangs_.arrive(core_, kind); }
  void abort_sent(uint32_t tag, uint32_t root, const spec::CoreSet& gang, uint32_t code) override {
    gangs_.abort(core_, tag, root, gang, code);
  }

  const uint32_t core_;
  FakeGangs& gangs_;
};

class Gangs : public ::testing::Test {
 protected:
  static constexpr uint32_t kCores = 4;
  Gangs() {
    for (uint32_t i = 0; i < kCores; ++i) {
      cores_.emplace_back(i, kCores, gangs_);
      gangs_.add(i, cores_[i]);
    }
  }
  void join_all(uint32_t tag) {
    for (GangCore& core : cores_) {
      core.join(tag, 0xF);
    }
  }

  FakeGangs gangs_{kCores};
  std::deque<GangCore> cores_;
};

TEST_F(Gangs, AreReleasedWhenTheLastCoreArrives) {
  join_all(7);
  for (uint32_t i = 0; i + 1 < kCores; ++i) {
    cores_[i].arrive(0);
  }
  EXPECT_FALSE(cores_[0].released());
  cores_[3].arrive(0);
  for (const GangCore& core : cores_) {
    EXPECT_TRUE(core.released());
    EXPECT_FALSE(core.barrier_waiting);
  }
}

TEST_F(Gangs, OfDifferentOrderOnTheirCoresAreAborted) {
  cores_[0].join(7, 3);
  cores_[1].join(8, 3);
  cores_[0].arrive(0);
  cores_[1].arrive(0);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(cores_[i].aborted());
    EXPECT_EQ(cores_[i].code(), TPU_GSYNC_CODE_MISMATCH);
  }
  EXPECT_FALSE(cores_[2].aborted());
}

TEST_F(Gangs, ThatOverlapInNoCoreThatWaitsAreNoMismatch) {
  cores_[0].join(7, 3);
  cores_[2].join(8, 0xC);
  cores_[0].arrive(0);
  cores_[2].arrive(0);
  EXPECT_FALSE(cores_[0].aborted());
  EXPECT_FALSE(cores_[2].aborted());
}

TEST_F(Gangs, AnAbortIsToldToCoresThatComeLater) {
  cores_[0].join(7, 3);
  cores_[0].arrive(0);
  cores_[1].abort_gang(7, 3, TPU_GSYNC_CODE_NOT_STARTED);
  EXPECT_TRUE(cores_[0].aborted());
  EXPECT_FALSE(cores_[1].aborted()) << "it has not joined";
  cores_[1].join(7, 3);
  cores_[1].arrive(0);
  EXPECT_TRUE(cores_[1].aborted());
  EXPECT_EQ(cores_[1].code(), TPU_GSYNC_CODE_NOT_STARTED);
}

TEST_F(Gangs, TheFirstAbortCounts) {
  join_all(7);
  cores_[2].abort_gang(7, 0xF, TPU_GSYNC_CODE_FAULT);
  cores_[1].abort_gang(7, 0xF, TPU_GSYNC_CODE_HART);
  for (const GangCore& core : cores_) {
    EXPECT_EQ(core.code(), TPU_GSYNC_CODE_FAULT);
  }
}

TEST_F(Gangs, TheHostAbortsOnlyTheGangThatACoreIsIn) {
  join_all(7);
  gangs_.abort_by_host(1, 6);
  EXPECT_FALSE(cores_[1].aborted());
  gangs_.abort_by_host(1, 7);
  for (const GangCore& core : cores_) {
    EXPECT_EQ(core.code(), TPU_GSYNC_CODE_HOST);
  }
}

// The others must not wait for it in the drain barrier.
TEST_F(Gangs, ACoreThatIsPastAnAbortedGangDrainsByItself) {
  join_all(7);
  cores_[3].join(8, 0xF);
  cores_[0].abort_gang(7, 0xF, TPU_GSYNC_CODE_FAULT);
  EXPECT_FALSE(cores_[3].aborted());
  for (size_t i = 0; i < 3; ++i) {
    cores_[i].arrive(0, TPU_GSYNC_KIND_DRAIN);
  }
  EXPECT_TRUE(cores_[0].released());
}

TEST_F(Gangs, AResetRootForgetsWhoHasArrived) {
  cores_[0].join(7, 3);
  cores_[1].join(7, 3);
  cores_[0].arrive(0);
  gangs_.reset(0);
  cores_[1].arrive(0);
  EXPECT_FALSE(cores_[1].released());
}

TEST_F(Gangs, AnAbortIsForgottenBeforeItsTagComesAgain) {
  cores_[0].abort_gang(7, 1, TPU_GSYNC_CODE_FAULT);
  cores_[0].join(7 + TPU_GSYNC_FORGET_AGE, 1);
  cores_[0].arrive(0);
  EXPECT_TRUE(cores_[0].released());
  cores_[0].join(7, 1);
  cores_[0].arrive(0);
  EXPECT_TRUE(cores_[0].released());
  EXPECT_FALSE(cores_[0].aborted());
}

// MockDevice answers SLOT_CHECK as its tests say; this one looks at the table.
class CheckingDevice : public MockDevice {
 public:
  int32_t first_bad_slot(uint32_t bank, uint32_t count) override {
    return FakeCore::first_bad_slot(bank, count);
  }
  int32_t check(const tpu_slot_entry_t& slot) {
    std::memcpy(host.data(), &slot, sizeof(slot));
    const uint32_t context = TPU_HART_HOSTDMA_BASE;
    write(context + TPU_HOSTDMA_LEN_LO_OFFSET, sizeof(slot));
    write(context + TPU_HOSTDMA_LOCAL_LO_OFFSET, TPU_SEQ_SLOT_BANK_BYTES);
    write(context + TPU_HOSTDMA_START_OFFSET,
          TPU_HOSTDMA_SPACE_SLOTS << TPU_HOSTDMA_START_SPACE_SHIFT);
    finish_any_dma();
    return first_bad_slot(1, 1);
  }
};

TEST(FakeSlots, AreCheckedAsTheSequencerDoes) {
  CheckingDevice device;
  tpu_slot_entry_t good{};
  good.base = 0x1000;
  good.size = 0x100;
  EXPECT_EQ(device.check(good), -1);
  EXPECT_EQ(device.first_bad_slot(1, 2), -1) << "what was not written is an empty slot";
  const auto bad = [&](const auto& change) {
    tpu_slot_entry_t slot = good;
    change(slot);
    return device.check(slot);
  };
  EXPECT_EQ(bad([](auto& s) { s.base += 4; }), 0);
  EXPECT_EQ(bad([](auto& s) { s.size = MockDevice::kHbmBytes; }), 0);
  EXPECT_EQ(bad([](auto& s) { s.mode = TPU_SLOT_NULL + 1; }), 0);
  EXPECT_EQ(bad([](auto& s) { s.flags = 2; }), 0);
  EXPECT_EQ(bad([](auto& s) { s.mode = TPU_SLOT_INFEED; }), 0) << "no depth";
  const auto ring = [](auto& s) {
    s.mode = TPU_SLOT_OUTFEED;
    s.depth = 2;
    s.stride = MockDevice::kHbmBytes / 2;
  };
  EXPECT_EQ(bad(ring), -1);
  EXPECT_EQ(bad([&](auto& s) {
              ring(s);
              s.stride *= 2;
            }),
            0);
  EXPECT_EQ(bad([](auto& s) {
              s.mode = TPU_SLOT_PINGPONG;
              s.alt_base = MockDevice::kHbmBytes;
            }),
            0);
  EXPECT_EQ(bad([](auto& s) {
              s.mode = TPU_SLOT_NULL;
              s.base = 1;
            }),
            -1);
}

TEST(FakeWindow, EndsBehindItsLastWord) {
  MockDevice device;
  constexpr uint32_t kEnd = TPU_HART_HBM_WINDOW_BASE + TPU_HART_HBM_WINDOW_BYTES;
  device.read(kEnd - 4);
  EXPECT_EQ(device.bad_accesses, 0U);
  EXPECT_EQ(device.read(kEnd), 0xFFFFFFFFU);
  EXPECT_EQ(device.bad_accesses, 1U);
}

TEST(FirmwareOnHost, ATurnInsideOfAnotherGivesItsPlaceBack) {
  MockDevice device;
  fw_t outside{}, inside{};
  const firmware::FirmwareTurn outer(outside, device);
  {
    const firmware::FirmwareTurn inner(inside, device);
    EXPECT_EQ(fw_of_thread, &inside);
  }
  EXPECT_EQ(fw_of_thread, &outside);
}

// Each thread has a core of its own; the state of the firmware is theirs alone.
TEST(FirmwareOnHost, RunsInSeveralThreads) {
  constexpr uint32_t kRounds = 300;
  std::vector<std::thread> threads;
  std::vector<uint32_t> done(3);
  for (size_t i = 0; i < done.size(); ++i) {
    threads.emplace_back([&done, i] {
      MockDevice device;
      RingHost host(device);
      firmware::FirmwareOnHost firmware(device);
      device.tcm = [&](uint64_t address, uint64_t bytes) {
        const auto part = firmware.tcm_bytes(address, bytes);
        return std::span(reinterpret_cast<uint8_t*>(part.data()), part.size());
      };
      const auto settle = [&] {
        while (firmware.dispatch() || device.settle_one()) {
        }
      };
      firmware.boot(static_cast<uint32_t>(i));
      host.open(4, 5);
      settle();
      for (uint32_t round = 0; round < kRounds; ++round) {
        host.put(tpu_command_nop_t{}, TPU_OP_NOP);
        host.doorbell();
        settle();
        for (const tpu_completion_t& entry : host.take()) {
          done[i] += entry.status == TPU_STATUS_OK && entry.seq == round ? 1 : 0;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(done, std::vector<uint32_t>(3, kRounds));
}

}  // namespace
}  // namespace tpu::test
