// Shardings as XLA says them: lists of tiles, and back.
#include "ir/sharding.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tpu::compiler {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Mesh mesh_of(std::vector<int64_t> device_ids = {}) {
  return {"mesh", {{"a", 2}, {"b", 2}, {"c", 2}}, std::move(device_ids)};
}

TEST(TileLists, SayTheTileOfEachCore) {
  const TileList list = tiles_of(mesh_of(), {{{2}, {0}}}, 2);
  EXPECT_THAT(list.tiles, ElementsAre(2, 2, 2));
  EXPECT_THAT(list.cores, ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
  EXPECT_TRUE(list.copies);
  EXPECT_TRUE(tiles_of(mesh_of(), {}, 2).tiles.empty());
  const TileList all = tiles_of(mesh_of(), {{{1, 0, 2}}}, 1);
  EXPECT_THAT(all.cores, ElementsAre(0, 1, 4, 5, 2, 3, 6, 7));
  EXPECT_FALSE(all.copies);
}

TEST(TileLists, BecomeTheSameAxesAgain) {
  for (const Mesh& mesh : {mesh_of(), mesh_of({3, 1, 2, 0, 7, 5, 6, 4})}) {
    for (const Sharding& sharding :
         {Sharding{{{0}, {}}}, Sharding{{{2, 0}, {1}}}, Sharding{{{}, {1, 2}}},
          Sharding{{{1}, {0}}}, Sharding{{{0, 1, 2}, {}}}}) {
      EXPECT_EQ(sharding_of_tiles(mesh, tiles_of(mesh, sharding, 2), 2), sharding);
    }
    EXPECT_EQ(sharding_of_tiles(mesh, {}, 2), Sharding());
  }
}

TEST(TileLists, WhatNoAxesMakeIsRefused) {
  const auto error = [](const TileList& list) {
    try {
      sharding_of_tiles(mesh_of(), list, 1);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(error({{8}, {0, 1, 2, 3, 5, 4, 6, 7}, false}), HasSubstr("no axes"));
  EXPECT_THAT(error({{4}, {0, 1, 2, 3}, false}), HasSubstr("for each of the 8 cores"));
  EXPECT_THAT(error({{8}, {0, 0, 1, 2, 3, 4, 5, 6}, false}), HasSubstr("for each of the 8 cores"));
  EXPECT_THAT(error({{2, 4}, {0, 1, 2, 3, 4, 5, 6, 7}, false}), HasSubstr("for each"));
}

}  // namespace
}  // namespace tpu::compiler
