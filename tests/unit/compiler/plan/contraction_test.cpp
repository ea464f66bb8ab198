// Contractions: boxes of overlapping windows, folded transposes, and how the layers of the guide's
// convnet (25 images a core) are mapped.
#include "kernel/contraction.hpp"

#include <gtest/gtest.h>

#include "board/board_loader.hpp"
#include "plan/contraction_plan.hpp"
#include "plan/tile_box.hpp"

namespace tpu::compiler {
namespace {

using Rows = Mapping::Rows;

TEST(TileBox, OverlappingLoopsAreOneDim) {
  // Rows, columns, taps of a row, channels of a 26 x 26 x 256 image.
  const TileBox b = make_box({{2, 26 * 256}, {24, 256}, {3, 256}, {256, 1}}, false);
  ASSERT_EQ(b.dims.size(), 3u);
  EXPECT_EQ(b.dims[1].n, 26);  // 24 columns and the two that the taps reach beyond
  EXPECT_EQ(b.elements, 2 * 26 * 256);
  EXPECT_EQ(b.stride, (Dims{26 * 256, 256, 256, 1}));
  // A part of the channels is dense in the box.
  const TileBox part = make_box({{24, 256}, {3, 256}, {64, 1}}, false);
  EXPECT_EQ(part.elements, 26 * 64);
  EXPECT_EQ(part.stride, (Dims{64, 64, 1}));
}

TEST(TileBox, NegativeStridesAndHoles) {
  const TileBox b = make_box({{4, -10}, {3, 2}}, false);
  EXPECT_EQ(b.first, -30);
  EXPECT_EQ(b.elements, 4 * 5);  // small holes are loaded too
  EXPECT_EQ(b.origin, 3 * 5);
  EXPECT_EQ(b.stride, (Dims{-5, 2}));
  EXPECT_EQ(make_box({{4, 10}, {3, 2}}, true).elements, 12);  // a store has no holes
  EXPECT_EQ(make_box({{5, 0}, {1, 7}}, false).elements, 1);
}

TEST(OutPieces, DimsOfTheResultInATransposedOne) {
  // [2,12] seen as [3,2,4] = transpose of [2,3,4].
  const OutPieces p = pieces_of({2, 12}, {3, 2, 4}, {4, 12, 1});
  ASSERT_EQ(p.size(), 2u);
  EXPECT_EQ(p[0].at(0).stride, 4);
  ASSERT_EQ(p[1].size(), 2u);
  EXPECT_EQ(p[1][0].n, 3);
  EXPECT_EQ(p[1][0].stride, 8);
  EXPECT_EQ(p[1][1].stride, 1);
  EXPECT_TRUE(pieces_of({4, 6}, {6, 4}, {1, 6}).size() == 2);
  EXPECT_TRUE(pieces_of({4, 6}, {3, 8}, {8, 1}).empty());  // dims cut each other
}

// The values that contractions of this test read.
struct Operands {
  Value lhs, rhs;
  Operands() { lhs.type = rhs.type = {Elem::kF32, {1}}; }
};

Contraction loops(const Operands& o, std::vector<Contraction::Dim> m,
                  std::vector<Contraction::Dim> n, std::vector<Contraction::Dim> k) {
  Contraction c;
  c.lhs = &o.lhs;
  c.rhs = &o.rhs;
  c.m = std::move(m);
  c.n = std::move(n);
  c.k = std::move(k);
  return c;
}

TEST(Mapping, ForwardMergesTheTapsOfARow) {
  const Operands o;
  const int64_t c = 256, w = 26 * c;
  const Mapping m =
      map_contraction(loops(o, {{25, 26 * w, 0, 24 * 24 * c}, {24, w, 0, 24 * c}, {24, c, 0, c}},
                            {{c, 0, 1, 1}}, {{3, w, 3 * c * c, 0}, {3, c, c * c, 0}, {c, 1, c, 0}}),
                      spec::load_board("v3_8", {}));
  EXPECT_EQ(m.rows, Rows::kDirect);
  ASSERT_EQ(m.c.k.size(), 2u);  // kernel rows are taps, columns and channels one run
  EXPECT_EQ(m.run, 1u);
  EXPECT_EQ(m.c.k[1].n, 3 * c);
  EXPECT_EQ(m.chunk, 0);
}

TEST(Mapping, InputGradientReadsTheKernelBackwards) {
  const Operands o;
  const int64_t c = 256, w = 28 * c;
  const Mapping m = map_contraction(
      loops(o, {{25, 28 * w, 0, 26 * 26 * c}, {26, w, 0, 26 * c}, {26, c, 0, c}}, {{c, 0, c, 1}},
            {{3, w, -3 * c * c, 0}, {3, c, -c * c, 0}, {c, 1, 1, 0}}),
      spec::load_board("v3_8", {}));
  EXPECT_EQ(m.rows, Rows::kDirect);
  EXPECT_EQ(m.run, 2u);  // one run of the rows; the weights need two strides
  EXPECT_EQ(m.c.k[1].rhs, -c * c);
}

TEST(Mapping, WeightGradientTurnsTheOutputGradient) {
  const Operands o;
  const int64_t c = 256, w = 26 * c, p = 24 * c;
  const Mapping m = map_contraction(
      loops(o, {{3, w, 0, 3 * c * c}, {3, c, 0, c * c}, {c, 1, 0, c}}, {{c, 0, 1, 1}},
            {{25, 26 * w, 24 * p, 0}, {24, w, p, 0}, {24, c, c, 0}}),
      spec::load_board("v3_8", {}));
  EXPECT_EQ(m.rows, Rows::kTranspose);
  EXPECT_EQ(Contraction::count(m.c.m), c);  // the sides changed places
  EXPECT_EQ(Contraction::count(m.c.n), 9 * c);
  EXPECT_TRUE(m.transpose_out);
  EXPECT_EQ(m.chunk_dim, 0u);
  EXPECT_EQ(m.chunk, 2);  // images: 1,152 pixels, nine whole K tiles
}

TEST(Mapping, FirstLayerGathersItsPatches) {
  const Operands o;
  const spec::BoardParams board = spec::load_board("v3_8", {});
  const Mapping forward =
      map_contraction(loops(o, {{25, 784, 0, 676 * 256}, {26, 28, 0, 26 * 256}, {26, 1, 0, 256}},
                            {{256, 0, 1, 1}}, {{3, 28, 3 * 256, 0}, {3, 1, 256, 0}}),
                      board);
  EXPECT_EQ(forward.rows, Rows::kGatherTranspose);
  EXPECT_EQ(forward.run, forward.c.k.size());  // all nine taps in one K tile
  const Mapping gradient =
      map_contraction(loops(o, {{3, 28, 0, 3 * 256}, {3, 1, 0, 256}}, {{256, 0, 1, 1}},
                            {{25, 784, 676 * 256, 0}, {26, 28, 26 * 256, 0}, {26, 1, 256, 0}}),
                      board);
  EXPECT_EQ(gradient.rows, Rows::kGather);
  EXPECT_EQ(Contraction::count(gradient.c.m), 9);
}

// 128 images of three channels, 7 x 7 taps with stride 2: a run along the images needs neither
// copies of the windows nor narrow columns.
TEST(Mapping, FirstLayerOfManyImagesRunsAlongTheImages) {
  const Operands o;
  const spec::BoardParams board = spec::load_board("v3_8", {});
  const int64_t row = 230 * 3, pixels = 112 * 112 * 64;
  const auto gradient = [&](int64_t images) {
    return map_contraction(
        loops(o, {{7, row, 0, 7 * 3 * 64}, {7, 3, 0, 3 * 64}, {3, 1, 0, 64}}, {{64, 0, 1, 1}},
              {{images, 230 * row, pixels, 0}, {112, 2 * row, 112 * 64, 0}, {112, 6, 64, 0}}),
        board);
  };
  const Mapping m = gradient(128);
  EXPECT_EQ(m.rows, Rows::kTransposeBox);
  EXPECT_EQ(m.run, 1u);
  EXPECT_EQ(Contraction::count(m.c.m), 147);
  ASSERT_EQ(m.c.k.size(), 3u);
  EXPECT_EQ(m.c.k[2].lhs, 230 * row);
  EXPECT_NE(gradient(8).rows, Rows::kTransposeBox);  // runs of 8 would leave the array empty
}

// The mapping is part of the order of a sum: boards of other speeds, memories and numbers of units
// compute the same bits (docs/numerics.md).
TEST(Mapping, LooksAtShapesAndArraysAlone) {
  const Operands o;
  const int64_t c = 256, w = 26 * c, p = 24 * c;
  const std::vector<Contraction> contractions = {
      loops(o, {{25, 26 * w, 0, 24 * 24 * c}, {24, w, 0, 24 * c}, {24, c, 0, c}}, {{c, 0, 1, 1}},
            {{3, w, 3 * c * c, 0}, {3, c, c * c, 0}, {c, 1, c, 0}}),
      loops(o, {{3, w, 0, 3 * c * c}, {3, c, 0, c * c}, {c, 1, 0, c}}, {{c, 0, 1, 1}},
            {{25, 26 * w, 24 * p, 0}, {24, w, p, 0}, {24, c, c, 0}}),
      loops(o, {{25, 784, 0, 676 * 256}, {26, 28, 0, 26 * 256}, {26, 1, 0, 256}}, {{256, 0, 1, 1}},
            {{3, 28, 3 * 256, 0}, {3, 1, 256, 0}}),
      loops(o, {{3, 28, 0, 3 * 256}, {3, 1, 0, 256}}, {{256, 0, 1, 1}},
            {{25, 784, 676 * 256, 0}, {26, 28, 26 * 256, 0}, {26, 1, 256, 0}}),
  };
  for (const Contraction& given : contractions) {
    const Mapping expected = map_contraction(given, spec::load_board("v3_8", {}));
    for (const std::vector<std::string>& change : {std::vector<std::string>{"core.mxus=1"},
                                                   {"core.mxus=4"},
                                                   {"dma.local_bytes_per_cycle=4"},
                                                   {"dma.granule_bytes=64"},
                                                   {"core.vmem_kib=32768"}}) {
      const Mapping m = map_contraction(given, spec::load_board("v3_8", change));
      EXPECT_EQ(m.rows, expected.rows) << change[0];
      EXPECT_EQ(m.run, expected.run) << change[0];
      EXPECT_EQ(m.transpose_out, expected.transpose_out) << change[0];
      EXPECT_EQ(m.chunk, expected.chunk) << change[0];
      EXPECT_EQ(m.chunk_dim, expected.chunk_dim) << change[0];
      EXPECT_EQ(m.c.lhs, expected.c.lhs) << change[0];
      EXPECT_EQ(Contraction::count(m.c.m), Contraction::count(expected.c.m)) << change[0];
    }
  }
}

// 3 x 3 taps of a convolution that may span taps: `features` on 128 images of 56 x 56.
Mapping spanning(const Operands& o, int64_t features, int64_t kernel_rows,
                 const spec::BoardParams& board) {
  const int64_t c = features, w = 58 * c;
  Contraction given =
      loops(o, {{128, 58 * w, 0, 56 * 56 * c}, {56, w, 0, 56 * c}, {56, c, 0, c}}, {{c, 0, 1, 1}},
            {{kernel_rows, w, 3 * c * c, 0}, {3, c, c * c, 0}, {c, 1, c, 0}});
  EXPECT_EQ(map_contraction(given, board).rows, Rows::kDirect);
  given.span_taps = true;
  return map_contraction(given, board);
}

TEST(Mapping, TilesSpanTapsWhereThatIsFasterAndTheSumTheSame) {
  Operands o;
  o.lhs.type.elem = o.rhs.type.elem = Elem::kBf16;
  const spec::BoardParams board = spec::load_board("v2_8", {});
  const Mapping m = spanning(o, 64, 3, board);
  EXPECT_EQ(m.rows, Rows::kGather);
  EXPECT_EQ(m.run, m.c.k.size());  // 576: five tiles, not three times two
  EXPECT_EQ(m.chunk, 0);
  EXPECT_EQ(spanning(o, 128, 3, board).rows, Rows::kDirect);  // no tile is half empty
  EXPECT_EQ(spanning(o, 40, 3, board).rows, Rows::kDirect);   // segments would be cut elsewhere
  // Four rows of 192 fill six tiles: no empty segment would make +0 of a last -0.
  EXPECT_EQ(spanning(o, 64, 4, board).rows, Rows::kDirect);
  // Two units take the tiles as fast as the DMA would pack them.
  EXPECT_EQ(spanning(o, 64, 3, spec::load_board("v3_8", {})).rows, Rows::kDirect);
}

TEST(Tiles, BlocksCoverTheLoopsOnceInOrder) {
  const std::vector<Contraction::Dim> dims = {{3, 0, 0, 0}, {7, 0, 0, 0}, {2, 0, 0, 0}};
  const std::vector<Block> blocks = blocks_of(dims, {1, 4});
  ASSERT_EQ(blocks.size(), 6u);
  EXPECT_EQ(blocks[1].start, (Dims{0, 4, 0}));
  EXPECT_EQ(blocks[1].count, (Dims{1, 3, 2}));
  EXPECT_EQ(blocks[2].start, (Dims{1, 0, 0}));
}

}  // namespace
}  // namespace tpu::compiler
