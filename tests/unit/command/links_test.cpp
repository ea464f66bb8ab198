// Ways over the torus, their latencies, and transfers that share them.
#include "command/links.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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

TEST_F(LinksTest, AWayGoesRoundLinksThatAreDown) {
  const auto x_of_0 = [this](const Links::Hop& hop) {
    return hop.chip == 0 && links.link(hop) == links.link({.chip = 0});
  };
  const auto way = links.way_around(0, 2, x_of_0);  // chip 0 to chip 1
  ASSERT_TRUE(way.has_value());
  ASSERT_EQ(way->count, 3U);  // by chips 2 and 3
  EXPECT_EQ(way->hop[0].chip, 0U);
  EXPECT_TRUE(way->hop[0].y);
  EXPECT_EQ(way->hop[1].chip, 2U);
  EXPECT_FALSE(way->hop[1].y);
  EXPECT_EQ(way->hop[2].chip, 3U);
  EXPECT_TRUE(way->hop[2].y);
  EXPECT_EQ(links.data_latency(*way),
            links.data_latency(0, 2) + 2 * cycles_from_ns(board, board.ici.extra_hop_ns));
  EXPECT_EQ(links.control_latency(*way), 3 * links.control_latency(0, 2));
  Transfer transfer;
  transfer.set_bytes(1 << 20);
  links.add_way(*way, 0, 2, transfer);
  EXPECT_EQ(links.way_around(2, 0, x_of_0)->count, 1U);  // the other direction works
  EXPECT_EQ(links.way_around(0, 1, x_of_0)->count, 0U);
  const auto all_of_0 = [](const Links::Hop& hop) { return hop.chip == 0; };
  EXPECT_FALSE(links.way_around(0, 2, all_of_0).has_value());
  EXPECT_TRUE(links.way_around(2, 4, all_of_0).has_value());  // chip 1 to chip 2 by chip 3
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

// A pod of 2 x 2 boards of 2 x 2 chips: boards 0 and 1 in the first two rows of chips.
class CutLinks : public ::testing::Test {
 protected:
  static constexpr uint64_t kBytes = 1 << 20;

  const BoardParams pod = load_board("v3_32");
  std::array<BandwidthShare, 4> share;
  const std::array<BandwidthShare*, 4> shares = {&share[0], &share[1], &share[2], &share[3]};
  const Links links{pod, shares};
  BandwidthShare one_share;
  const Links whole{pod, one_share};

  uint64_t ns(int64_t time) const { return cycles_from_ns(pod, time); }
  // Cycle at which a transfer that begins at 0 lands: one flow a board.
  uint64_t landing(uint32_t from, uint32_t to) {
    uint64_t last = end(share[links.board_of(from)], 0,
                        [&](Transfer& transfer) { links.add_path(from, to, transfer); }) +
                    links.data_latency(from, to);
    for (const Links::Section& section : links.sections(from, to)) {
      last = std::max(last, end(share[section.board], section.entry, [&](Transfer& transfer) {
                              links.add_section(links.way(from, to), to, section, transfer);
                            }) + section.rest);
    }
    return last;
  }
  uint64_t landing_uncut(uint32_t from, uint32_t to) {
    return end(one_share, 0, [&](Transfer& transfer) { whole.add_path(from, to, transfer); }) +
           whole.data_latency(from, to);
  }

 private:
  template <class Path>
  static uint64_t end(BandwidthShare& share, uint64_t begin, Path path) {
    Transfer transfer;
    std::vector<Transfer*> ended;
    transfer.set_bytes(kBytes);
    path(transfer);
    share.start(transfer, begin);
    const uint64_t at = share.update(begin, ended);
    share.update(at, ended);
    return transfer.done_at();
  }
};

TEST_F(CutLinks, ATransferHasASectionInEachBoardThatItEnters) {
  EXPECT_FALSE(links.cut(0, 2));
  EXPECT_TRUE(links.sections(0, 10).empty());  // chip 0 to chip 5, of one board
  // Chip 0 to chip 2, in the next board.
  const std::vector<Links::Section> next = links.sections(0, 4);
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].board, 1u);
  EXPECT_EQ(next[0].count, 0u);
  EXPECT_EQ(next[0].entry, ns(pod.ici.hop_ns) + ns(pod.ici.extra_hop_ns));
  EXPECT_EQ(next[0].rest, 0u);
  // Chip 0 to chip 15: three links to the right, by board 1, and three down.
  const std::vector<Links::Section> far = links.sections(1, 31);
  ASSERT_EQ(far.size(), 2u);
  EXPECT_EQ(far[0].board, 1u);
  EXPECT_EQ(far[0].first, 2u);
  EXPECT_EQ(far[0].count, 3u);  // one in the row, one down, and the one that leaves
  EXPECT_EQ(far[1].board, 3u);
  EXPECT_EQ(far[1].count, 1u);
  EXPECT_EQ(far[1].entry, ns(pod.ici.hop_ns) + 4 * ns(pod.ici.extra_hop_ns));
  EXPECT_EQ(far[1].entry + far[1].rest, links.data_latency(1, 31));
}

TEST_F(CutLinks, LinesHaveOneWay) {
  EXPECT_EQ(links.hops(0, 6), 3u);  // chip 0 to chip 3 of the row
  const BoardParams closed = load_board("v3_32", {"pod.wrap_x=1"});
  BandwidthShare other;
  EXPECT_EQ(Links(closed, other).hops(0, 6), 1u);
}

TEST_F(CutLinks, HopsAreThoseOfTheWay) {
  for (uint32_t from = 0; from < links.cores(); ++from) {
    for (uint32_t to = 0; to < links.cores(); ++to) {
      EXPECT_EQ(links.hops(from, to), links.way(from, to).count) << from << " to " << to;
    }
  }
}

TEST_F(CutLinks, WithoutOthersNothingLandsLaterForTheCut) {
  for (const uint32_t from : {0u, 5u, 13u, 31u}) {
    for (uint32_t to = 0; to < links.cores(); ++to) {
      if (to != from) {
        EXPECT_EQ(landing(from, to), landing_uncut(from, to)) << from << " to " << to;
      }
    }
  }
}

// What leaves a board is not slowed by what goes on in the other one.
TEST_F(CutLinks, RatesAreThoseOfOneBoard) {
  Transfer sent, busy;
  std::vector<Transfer*> ended;
  sent.set_bytes(kBytes);
  links.add_path(0, 4, sent);
  share[0].start(sent, 0);
  const uint64_t alone = share[0].update(0, ended);
  busy.set_bytes(kBytes);
  links.add_path(6, 4, busy);  // chip 3 to chip 2, into the port of the receiver
  share[1].start(busy, 0);
  share[1].update(0, ended);
  EXPECT_EQ(share[0].update(0, ended), alone);
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
        EXPECT_EQ(torus.links.hops(from, to), way.count);
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

// A neighbor of the receiver uses the same link: only whole pods share that.
TEST(EstimatedLinks, CountATransferInTheBoardOfItsSender) {
  const BoardParams pod = load_board("v3_32");
  const auto first_end = [](const Links& links, BandwidthShare& share, bool both) {
    Transfer over, inside;
    for (Transfer* t : {&over, &inside}) {
      t->set_bytes(1 << 20);
    }
    std::vector<Transfer*> ended;
    links.add_path(2, 6, over);  // chip 1 to chip 3, by chip 2 of its board
    share.start(over, 0);
    if (both) {
      links.add_path(4, 6, inside);
      share.start(inside, 0);
    }
    return share.update(0, ended);
  };
  BandwidthShare whole[2], cut[2];
  const Links shared[] = {{pod, whole[0]}, {pod, whole[1]}};
  const Links with_cuts[] = {Links::with_cuts(pod, cut[0]), Links::with_cuts(pod, cut[1])};
  EXPECT_GT(first_end(shared[0], whole[0], true), first_end(shared[1], whole[1], false));
  EXPECT_EQ(first_end(with_cuts[0], cut[0], true), first_end(with_cuts[1], cut[1], false));
}

}  // namespace
}  // namespace tpu::spec
