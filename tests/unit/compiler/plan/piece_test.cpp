// Pieces of tiles: what a tile of fewer iterations needs in the slot of a full one.
#include "plan/piece.hpp"

#include <gtest/gtest.h>

#include <random>

namespace tpu::compiler {
namespace {

View view_of(Dims stride) {
  View view;
  view.stride = std::move(stride);
  return view;
}

// 128 rows of 1,000 of 2,008 elements have too many holes for one run, 120 rows have not; the run
// of the short tile is longer than the full tile without holes.
TEST(Piece, TheHolesOfAShortTileFitTheSlotOfAFullOne) {
  const View view = view_of({2008, 1});
  const int64_t full = make_piece(view, {0, 0}, {128, 1000}, false).elements;
  ASSERT_EQ(full, 128'000);
  ASSERT_GT(make_piece(view, {0, 0}, {120, 1000}, false).elements, full);
  const Piece tail = make_piece(view, {128, 0}, {120, 1000}, false, 0, full);
  EXPECT_EQ(tail.elements, 120'000);
  EXPECT_EQ(tail.first, 128 * 2008);
  EXPECT_EQ(tail.stride, (Dims{1000, 1}));
}

TEST(Piece, HolesStayWhereTheSlotHasRoomForThem) {
  const View view = view_of({20, 1});
  const int64_t full = make_piece(view, {0, 0}, {16, 16}, false).elements;
  EXPECT_EQ(full, 15 * 20 + 16);
  EXPECT_EQ(make_piece(view, {0, 0}, {8, 16}, false, 0, full).elements, 7 * 20 + 16);
}

// Dimensions that follow each other without holes are one run.
TEST(Piece, NeighboursAreOneRun) {
  const Piece piece = make_piece(view_of({100'000, 512, 1}), {0, 0, 0}, {4, 16, 512}, true);
  ASSERT_EQ(piece.dims.size(), 2u);
  EXPECT_EQ(piece.dims[1].n, 16 * 512);
  EXPECT_EQ(piece.stride, (Dims{16 * 512, 512, 1}));
}

TEST(Piece, EveryTileFitsTheSlotOfTheLargestOne) {
  std::mt19937 random(20261129);
  const auto below = [&](int64_t end) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
  };
  for (int trial = 0; trial < 20'000; ++trial) {
    const size_t loops = 1 + static_cast<size_t>(below(4));
    Dims stride(loops), most(loops), count(loops);
    int64_t span = 1 + below(3);  // of an iteration of the next loop, without holes
    for (size_t l = loops; l-- > 0;) {
      most[l] = 1 + below(below(2) == 0 ? 8 : 200);
      count[l] = 1 + below(most[l]);
      stride[l] = (below(4) == 0 ? -1 : 1) * (span + (below(2) == 0 ? 0 : below(2 * span + 2)));
      span = std::abs(stride[l]) * most[l];
    }
    const View view = view_of(stride);
    const Dims zero(loops, 0);
    const int64_t reach = below(3) == 0 ? 1 + below(40) : 0;
    const bool exact = below(4) == 0 && reach == 0;
    const int64_t slot = make_piece(view, zero, most, exact, reach).elements;
    ASSERT_LE(make_piece(view, zero, count, exact, reach, slot).elements, slot)
        << "trial " << trial << ", reach " << reach;
  }
}

}  // namespace
}  // namespace tpu::compiler
