// A clock of transfers as its users step it: from one end to the next, all of a cycle at once.
#include "command/transfer_clock.hpp"

#include <gtest/gtest.h>

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

TEST_F(TransferClockTest, NothingUnderWayNeverEnds) {
  step(0);
  EXPECT_EQ(clock_.next_end(), BandwidthShare::kNever);
  EXPECT_TRUE(ends_.empty());
}

}  // namespace
}  // namespace tpu::spec
