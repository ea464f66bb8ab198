// Exchanges over different groups in one program: each semaphore has one waiting queue, as the
// board demands it.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "../graph_builder.hpp"
#include "board/board_loader.hpp"
#include "entry/codegen.hpp"
#include "kernel/exchange.hpp"

namespace tpu::compiler::test {
namespace {

const std::vector<Groups> kGroups = {
    {{0, 1}, {2, 3}, {4, 5}, {6, 7}}, {{0, 2}, {1, 3}, {4, 6}, {5, 7}},
    {{0, 3}, {1, 2}, {4, 7}, {5, 6}}, {{0, 1, 2, 3}, {4, 5, 6, 7}},
    {{0, 2, 4, 6}, {1, 3, 5, 7}},     {{0, 1, 2, 3, 4, 5, 6, 7}}};

Value* sum(GraphBuilder& b, Value* x, const Groups& groups) {
  CollectiveAttrs a;
  a.groups = groups;
  return b.with_body(b.op(Kind::kAllReduce, {x}, x->type, a), Kind::kAdd);
}

// By semaphore: the queues that wait for it, read off the text of the listing.
std::map<int, std::set<std::string>> waiting_queues(const Module& m, const std::string& vmem_kib) {
  const spec::BoardParams board = spec::load_board("v3_8", {"core.vmem_kib=" + vmem_kib});
  std::string text;
  CompileOptions options;
  options.update_sharding = UpdateSharding::kOff;
  options.dump_after = {"listing"};
  options.dump = [&](const std::string&, const std::string& t) { text = t; };
  generate(m, board, options);
  std::map<int, std::set<std::string>> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, queue;
    words >> number >> queue;
    for (std::string word; words >> word;) {
      if (word == "wait") {
        int semaphore = 0;
        words >> semaphore;
        out[semaphore].insert(queue);
      }
    }
  }
  return out;
}

TEST(ExchangeMasks, OneQueueWaitsForASemaphore) {
  // Small ones are exchanged by doubling, the others by halving, packed and streamed.
  for (const int64_t elements : {64, 24 * 1024, 160 * 1024}) {
    GraphBuilder b(8);
    std::vector<Value*> results;
    for (const Groups& groups : kGroups) {
      results.push_back(sum(b, b.arg(f32({elements})), groups));
    }
    const auto queues = waiting_queues(b.done(results), "16384");
    EXPECT_GE(queues.size(), 6u);
    for (const auto& [semaphore, names] : queues) {
      EXPECT_EQ(names.size(), 1u) << "semaphore " << semaphore << ", " << elements << " elements";
    }
  }
}

TEST(ExchangeMasks, PartnersOfStagesArePairs) {
  GraphBuilder b(8);
  Value* x = b.arg(f32({64}));
  for (const Groups& groups : kGroups) {
    const Exchange e = exchange_of(*sum(b, x, groups)->def, 8);
    for (size_t stage = 0; stage < e.stages(); ++stage) {
      const std::vector<int64_t> partners = stage_partners(e, stage, 8);
      for (int64_t core = 0; core < 8; ++core) {
        EXPECT_NE(partners[static_cast<size_t>(core)], core);
        EXPECT_EQ(partners[static_cast<size_t>(partners[static_cast<size_t>(core)])], core);
      }
    }
  }
}

Groups all_of(int64_t cores) {
  Groups groups(1);
  for (int64_t core = 0; core < cores; ++core) {
    groups[0].push_back(core);
  }
  return groups;
}

using Masks = std::vector<int64_t>;

// Of even cores, of odd ones.
std::pair<Masks, Masks> masks_of(const Groups& groups, int64_t cores, int64_t row) {
  GraphBuilder b(cores);
  const Exchange e = exchange_of(*sum(b, b.arg(f32({64})), groups)->def, cores, row);
  Masks odd;
  for (size_t stage = 0; stage < e.stages(); ++stage) {
    odd.push_back(e.masks[e.mask_of(1, stage)]);
  }
  std::set<int64_t> parts;
  for (const int64_t core : groups[0]) {
    parts.insert(owned_part(e, core));
  }
  EXPECT_EQ(parts.size(), groups[0].size()) << "every part has one owner";
  EXPECT_EQ(*parts.rbegin() + 1, static_cast<int64_t>(groups[0].size()));
  return {e.masks, odd};
}

TEST(ExchangeMasks, DimensionsOfTheTorusTakeTurns) {
  const auto of_eight = std::pair(Masks{1, 2, 4}, Masks{1, 4, 2});
  EXPECT_EQ(masks_of(all_of(8), 8, 4), of_eight);
  EXPECT_EQ(masks_of(all_of(8), 8, 0), of_eight);
  EXPECT_EQ(masks_of(all_of(8), 8, 8), of_eight) << "whatever its shape";
  EXPECT_EQ(masks_of(all_of(32), 32, 8),
            std::pair(Masks({1, 2, 8, 4, 16}), Masks({1, 8, 2, 16, 4})));
  EXPECT_EQ(masks_of(all_of(64), 64, 8),
            std::pair(Masks({1, 2, 8, 4, 16, 32}), Masks({1, 8, 2, 16, 4, 32})));
  EXPECT_EQ(masks_of(all_of(16), 16, 16), std::pair(Masks({1, 2, 4, 8}), Masks({1, 2, 4, 8})));
  EXPECT_EQ(masks_of(all_of(32), 32, 0),
            std::pair(Masks({1, 2, 4, 8, 16}), Masks({1, 2, 4, 8, 16})));
}

// Equal arrays have equal sums on all cores: the cores of a chip in different groups go one way.
TEST(ExchangeMasks, GroupsOfOneCoreOfEachChipDoNotCrossOver) {
  Groups halves(2);
  for (int64_t core = 0; core < 32; ++core) {
    halves[static_cast<size_t>(core % 2)].push_back(core);
  }
  EXPECT_EQ(masks_of(halves, 32, 8), std::pair(Masks({2, 8, 4, 16}), Masks({2, 8, 4, 16})));
  // Masks that lead into both dimensions.
  const Groups diagonals = {{0, 10},  {1, 11},  {2, 8},   {3, 9},   {4, 14},  {5, 15},
                            {6, 12},  {7, 13},  {16, 26}, {17, 27}, {18, 24}, {19, 25},
                            {20, 30}, {21, 31}, {22, 28}, {23, 29}};
  EXPECT_EQ(masks_of(diagonals, 32, 8), std::pair(Masks({10}), Masks({10})));
}

}  // namespace
}  // namespace tpu::compiler::test
