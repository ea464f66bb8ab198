// Ways over the torus, their latencies, and transfers that share them.
#include "command/links.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "board/board_loader.hpp"

namespace tpu::spec {
namespace {

class LinksTest : public ::testing::Test {
 protected:
  const BoardParams board = load_board("v3_8");
  BandwidthShare share;
  const Links links{board, share};
};

TEST_F(LinksTest, WaysGoByXThenY) {
  EXPECT_EQ(links.hops(0, 1), 0u);  // one chip
  EXPECT_EQ(links.hops(0, 2), 1u);
  EXPECT_EQ(links.hops(0, 4), 1u);
  const Links::Way far = links.way(1, 6);  // chip 0 to chip 3
  ASSERT_EQ(far.count, 2u);
  EXPECT_EQ(far.hop[0].chip, 0u);
  EXPECT_FALSE(far.hop[0].y);
  EXPECT_EQ(far.hop[1].chip, 1u);
  EXPECT_TRUE(far.hop[1].y);
}

TEST_F(LinksTest, LatencyGrowsWithTheHops) {
  const uint64_t hop = cycles_from_ns(board, board.ici.hop_ns);
  EXPECT_EQ(links.data_latency(0, 1), cycles_from_ns(board, board.ici.local_ns));
  EXPECT_EQ(links.data_latency(0, 2), hop);
  EXPECT_EQ(links.data_latency(0, 6), hop + cycles_from_ns(board, board.ici.extra_hop_ns));
  const uint64_t control = cycles_from_ns(board, board.ici.control_hop_ns);
  EXPECT_EQ(links.control_latency(0, 1), control);
  EXPECT_EQ(links.control_latency(0, 6), 2 * control);
}

TEST_F(LinksTest, TwoTransfersOverOneLinkShareIt) {
  Transfer alone, both;
  for (Transfer* t : {&alone, &both}) {
    t->set_bytes(1 << 20);
  }
  std::vector<Transfer*> ended;
  links.add_path(0, 2, alone);
  share.start(alone, 0);
  const uint64_t single = share.update(0, ended);
  links.add_path(1, 3, both);
  share.start(both, 0);
  const uint64_t shared = share.update(0, ended);
  EXPECT_TRUE(ended.empty());
  EXPECT_GT(shared, 2 * single - 2);
  EXPECT_LE(shared, 2 * single);
  EXPECT_EQ(share.update(shared, ended), BandwidthShare::kNever);
  EXPECT_EQ(ended.size(), 2u);
}

// A made-up board of two cores a chip.
class Torus {
 public:
  Torus(uint32_t chips, uint32_t x) : x_(x), y_(chips / x), links(board(chips, x), share) {}

  // Fewest links between two chips, by search.
  uint32_t distance(uint32_t from, uint32_t to) const {
    std::vector<uint32_t> far(x_ * y_, UINT32_MAX), queue = {from};
    far[from] = 0;
    for (size_t i = 0; i < queue.size(); ++i) {
      const uint32_t at = queue[i], column = at % x_, row = at / x_;
      for (const uint32_t next :
           {row * x_ + (column + 1) % x_, row * x_ + (column + x_ - 1) % x_,
            (row + 1) % y_ * x_ + column, (row + y_ - 1) % y_ * x_ + column}) {
        if (far[next] == UINT32_MAX) {
          far[next] = far[at] + 1;
          queue.push_back(next);
        }
      }
    }
    return far[to];
  }
  const Transfer& send(uint32_t from, uint32_t to) {
    Transfer& transfer = transfers_.emplace_back();
    links.add_path(from, to, transfer);
    transfer.set_bytes(1 << 20);
    share.start(transfer, now_);
    return transfer;
  }
  // Lets everything arrive; the cycle then.
  uint64_t run() {
    std::vector<Transfer*> ended;
    for (uint64_t next = now_; next != BandwidthShare::kNever; next = share.update(now_, ended)) {
      now_ = next;
    }
    return now_;
  }

 private:
  static BoardParams board(uint32_t chips, uint32_t x) {
    return load_board(
        "v3_8", {"board.chips=" + std::to_string(chips), "board.torus_x=" + std::to_string(x)});
  }
  uint32_t x_, y_;
  std::deque<Transfer> transfers_;
  uint64_t now_ = 0;

 public:
  BandwidthShare share;
  Links links;
};

TEST(Torus, WaysAreShortestAndLeadThere) {
  using Shape = std::pair<uint32_t, uint32_t>;  // chips, columns
  for (const auto& [chips, x] : {Shape{8, 4}, Shape{8, 8}, Shape{6, 3}, Shape{5, 5}, Shape{3, 1}}) {
    const Torus torus(chips, x);
    for (uint32_t from = 0; from < 2 * chips; ++from) {
      for (uint32_t to = 0; to < 2 * chips; ++to) {
        const Links::Way way = torus.links.way(from, to);
        ASSERT_EQ(way.count, torus.distance(from / 2, to / 2)) << from << " to " << to;
        bool y = false;
        uint32_t at = from / 2;
        for (uint32_t i = 0; i < way.count; ++i) {
          EXPECT_EQ(torus.distance(at, way.hop[i].chip), i == 0 ? 0u : 1u);
          EXPECT_TRUE(way.hop[i].y || !y) << "x after y";
          y = way.hop[i].y;
          at = way.hop[i].chip;
        }
        EXPECT_EQ(torus.distance(at, to / 2), way.count == 0 ? 0u : 1u);
      }
    }
  }
}

// Chips that lie opposite each other in a ring of four exchange: each of the eight links carries
// one transfer, so none is slower than one alone.
TEST(Torus, OppositeChipsUseBothDirections) {
  Torus torus(4, 4);
  torus.send(0, 4);
  const uint64_t alone = torus.run();
  for (const uint32_t from : {0u, 2u, 4u, 6u}) {
    torus.send(from, (from + 4) % 8);
  }
  EXPECT_EQ(torus.run(), 2 * alone);
}

TEST(Torus, OnlyWaysThatMeetShareALink) {
  Torus torus(8, 8);
  const Transfer& far = torus.send(0, 4);   // chips 0, 1, 2
  const Transfer& near = torus.send(1, 2);  // chips 0, 1
  const Transfer& back = torus.send(2, 0);  // chips 1, 0
  torus.run();
  EXPECT_EQ(far.done_at(), near.done_at());
  EXPECT_NEAR(static_cast<double>(far.done_at()), 2.0 * static_cast<double>(back.done_at()), 2);
}

}  // namespace
}  // namespace tpu::spec
