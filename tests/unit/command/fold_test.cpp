// Numbers of the cores of a folded pod, and its links.
#include "command/fold.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "board/board_loader.hpp"
#include "command/links.hpp"

namespace tpu::spec {
namespace {

class FoldTest : public ::testing::TestWithParam<const char*> {
 protected:
  const BoardParams pod = load_board(GetParam());
  const Fold fold{pod};
};

TEST_P(FoldTest, NumbersCoresByBoardAndBack) {
  std::set<uint32_t> seen;
  for (uint32_t core = 0; core < fold.cores(); ++core) {
    const uint32_t number = fold.by_board(core);
    EXPECT_TRUE(seen.insert(number).second);
    EXPECT_EQ(fold.in_pod(number), core);
    const int64_t board = board_of_chip(pod, core / pod.board.cores_per_chip);
    EXPECT_EQ(number / fold.board_cores(), board);
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(core_count(pod)));
  EXPECT_EQ(fold.by_board(fold.cores() + 5), fold.cores() + 5);
}

TEST_P(FoldTest, TwinsAreAtTheSamePlaceOfTheirBoards) {
  const auto width = static_cast<uint32_t>(chips_x(pod));
  const auto per_chip = static_cast<uint32_t>(pod.board.cores_per_chip);
  for (uint32_t number = 0; number < fold.cores(); ++number) {
    const uint32_t chip = fold.in_pod(number) / per_chip;
    const uint32_t twin = fold.in_pod(fold.twin(number)) / per_chip;
    EXPECT_EQ(fold.twin_chip(chip), twin);
    EXPECT_EQ(chip % width % 2, twin % width);
    EXPECT_EQ(chip / width % 2, twin / width);
  }
}

TEST_P(FoldTest, LatenciesAndSectionsAreThoseOfThePod) {
  BandwidthShare whole, board;
  const Links links(pod, whole);
  const Links folded(fold, board);
  for (uint32_t from = 0; from < fold.cores(); from += 3) {
    for (uint32_t to = 0; to < fold.cores(); to += 5) {
      const uint32_t a = fold.by_board(from);
      const uint32_t b = fold.by_board(to);
      ASSERT_EQ(folded.data_latency(a, b), links.data_latency(from, to));
      ASSERT_EQ(folded.control_latency(a, b), links.control_latency(from, to));
      ASSERT_EQ(folded.board_of(a), links.board_of(from));
      const auto sections = folded.sections(a, b);
      const auto of_pod = links.sections(from, to);
      ASSERT_EQ(sections.size(), of_pod.size());
      for (size_t i = 0; i < sections.size(); ++i) {
        ASSERT_EQ(sections[i].board, of_pod[i].board);
        ASSERT_EQ(sections[i].entry, of_pod[i].entry);
        ASSERT_EQ(sections[i].rest, of_pod[i].rest);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pods, FoldTest, ::testing::Values("v3_32", "v3_64", "v2_256"),
                         [](const auto& test) { return std::string(test.param); });

// A board that receives what it sends: each link carries what is in flight on all boards.
TEST(FoldedLinks, FarTransfersPassTheLinksOfTheBoardAgain) {
  const BoardParams pod = load_board("v3_2048");
  const Fold fold(pod);
  BandwidthShare share;
  const Links links(fold, share);
  const uint32_t from = 0;
  const uint32_t to = fold.by_board(2 * 4);  // chip 4: two boards to the right
  const auto sections = links.sections(from, to);
  ASSERT_EQ(sections.size(), 2U);
  std::vector<Transfer> parts(1 + sections.size());
  for (Transfer& part : parts) {
    part.set_bytes(1 << 20);
  }
  links.add_path(from, to, parts[0]);
  const Links::Way way = links.way(from, to);
  links.add_section(way, to, sections[0], parts[1]);
  links.add_section(way, to, sections[1], parts[2]);
  std::vector<Transfer*> ended;
  share.start(parts[0], 0);
  const uint64_t alone = share.update(0, ended);
  share.start(parts[1], 0);  // passes both links between chips of the first one's row too
  EXPECT_GT(share.update(0, ended), 2 * alone - 2);
}

}  // namespace
}  // namespace tpu::spec
