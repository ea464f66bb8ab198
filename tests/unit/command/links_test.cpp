// Ways over the torus, their latencies, and transfers that share them.
#include "command/links.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tpu::spec
