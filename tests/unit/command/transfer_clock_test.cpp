// A clock of transfers as its users step it: from one end to the next, all of a cycle at once.
#include "command/transfer_clock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>
#include <vector>

namespace tpu::spec {
namespace {

using Ends = std::vector<std::pair<uint64_t, int>>;  // cycle and number of the transfer

class TransferClockTest : public ::testing::Test {
 protected:
  TransferClockTest() : resource_(clock_.share().add_resource(16, 1)) {}

  void start(int number, uint64_t bytes, uint64_t now) {
    Transfer& transfer = transfers_[static_cast<size_t>(number)];
    transfer.add(resource_);
    transfer.set_bytes(bytes);
    clock_.start(transfer, now);
  }

  // All that ends in cycle `now`; `chained` starts when another one ends, with 160 bytes.
  void step(uint64_t now, int chained = -1) {
    while (clock_.step(now, [&](const Transfer& transfer) {
      ends_.emplace_back(now, static_cast<int>(&transfer - transfers_.data()));
      if (chained >= 0) {
        start(std::exchange(chained, -1), 160, now);
      }
    })) {
    }
  }

  void run(int chained = -1) {
    step(0);
    while (clock_.next_end() != BandwidthShare::kNever) {
      step(clock_.next_end(), std::exchange(chained, -1));
    }
  }

  TransferClock clock_;
  ResourceId resource_;
  std::vector<Transfer> transfers_{3};
  Ends ends_;
};

// Transfers of one resource alone are given their rates at once; where each has one of its own too,
// which never binds, they are worked out as for any set of resources. Both tell the same rates in
// the same order.
TEST(BandwidthShare, TransfersOfOneResourceShareItAsAnyOthersDo) {
  struct Side {
    BandwidthShare share{};
    std::vector<ResourceId> resources{};
    std::vector<Transfer> transfers{200};
    std::vector<std::array<uint64_t, 3>> told{};  // cycle, number, rate; of an end 0
    uint64_t next = 0;

    void update(uint64_t now) {
      std::vector<Transfer*> ended, rerated;
      next = share.update(now, ended, &rerated);
      for (const auto* list : {&ended, &rerated}) {
        for (const Transfer* each : *list) {
          told.push_back({now, static_cast<uint64_t>(each - transfers.data()), each->rate()});
        }
      }
    }
  };
  std::mt19937 random(7);
  std::array<Side, 2> sides;
  for (Side& side : sides) {
    for (const uint64_t rate : {16U, 7U, 100U}) {
      side.resources.push_back(side.share.add_resource(rate, 3));
    }
  }
  uint64_t now = 0;
  for (size_t begun = 0; begun < 200 || sides[0].share.active() != 0;) {
    for (uint32_t more = random() % 4; more > 0 && begun < 200; --more, ++begun) {
      const uint64_t bytes = 1 + random() % 5000;
      const size_t of = random() % 3;
      for (Side& side : sides) {
        Transfer& transfer = side.transfers[begun];
        transfer.add(side.resources[of]);
        if (&side == &sides[1]) {
          transfer.add(side.share.add_resource(1 << 20, 1));
        }
        transfer.set_bytes(bytes);
        side.share.start(transfer, now);
      }
    }
    for (Side& side : sides) {
      side.update(now);
    }
    ASSERT_EQ(sides[0].next, sides[1].next);
    now = std::min(sides[0].next, now + 1 + random() % 300);
  }
  EXPECT_GT(sides[0].told.size(), 400u);
  EXPECT_EQ(sides[0].told, sides[1].told);
}

TEST_F(TransferClockTest, SharesTheBandwidthAndTellsTheNextEnd) {
  start(0, 160, 0);
  start(1, 320, 0);
  step(0);
  EXPECT_EQ(clock_.next_end(), 20u);  // 8 bytes a cycle for each
  run();
  EXPECT_EQ(ends_, (Ends{{20, 0}, {30, 1}}));
}

TEST_F(TransferClockTest, WhatStartsInACycleChangesTheEnds) {
  start(0, 320, 0);
  step(0);
  EXPECT_EQ(clock_.next_end(), 20u);
  start(1, 80, 10);
  step(10);
  EXPECT_EQ(clock_.next_end(), 20u);
  run();
  EXPECT_EQ(ends_, (Ends{{20, 1}, {25, 0}}));
}

TEST_F(TransferClockTest, AnEndMayStartTheNext) {
  start(0, 160, 0);
  run(2);
  EXPECT_EQ(ends_, (Ends{{10, 0}, {20, 2}}));
}

// One that lists a resource twice counts as two of its kind.
TEST_F(TransferClockTest, OneThatGoesOnWithOtherResourcesKeepsWhatHasPassed) {
  transfers_[0].add(resource_);
  start(0, 320, 0);
  start(1, 800, 0);
  step(0);
  EXPECT_EQ(transfers_[0].rate(), (uint64_t{16} << BandwidthShare::kFraction) / 3);
  EXPECT_EQ(transfers_[1].rate(), transfers_[0].rate());
  step(15);
  clock_.forget();
  EXPECT_TRUE(clock_.due(15));
  transfers_[0].clear();
  transfers_[0].add(resource_);
  clock_.resume(transfers_[0]);
  step(15);
  EXPECT_EQ(clock_.next_end(), 31u);  // 240 bytes are left, rounded up, and 16 pass a cycle
  EXPECT_FALSE(clock_.due(15));
  step(31);
  clock_.forget();
  EXPECT_EQ(ends_, (Ends{{31, 0}}));
}

TEST_F(TransferClockTest, NothingUnderWayNeverEnds) {
  step(0);
  EXPECT_EQ(clock_.next_end(), BandwidthShare::kNever);
  EXPECT_TRUE(ends_.empty());
}

}  // namespace
}  // namespace tpu::spec
