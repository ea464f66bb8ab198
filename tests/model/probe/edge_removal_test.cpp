// The happens-before checker on compiled programs: as they are it finds nothing; without any one of
// their semaphore edges it finds something exactly where an oracle says that conflicting accesses
// are left without an order (happens_before.hpp). A program runs once, without data; what its cores
// did is then told to a checker again and again, each time without the signals and waits of one
// edge of the program's text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "../core/core_bench.hpp"
#include "entry/compile.hpp"
#include "happens_before.hpp"

namespace tpu::model::test {
namespace {

std::vector<std::byte> file_bytes(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
  const auto view = std::as_bytes(std::span(bytes));
  return {view.begin(), view.end()};
}

class EdgeRemoval : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::vector<std::byte> artifact =
        file_bytes(std::string(TPU_GRAPHS) + "/" + GetParam() + ".mlirbc");
    ASSERT_FALSE(artifact.empty());
    run(compiler::compile(artifact, "", bench_.params).executable);
  }

  // On cores 0 .. partitions - 1, with memory for each slot.
  void run(const exe::ExecutableT& exe) {
    const uint32_t mask = (1u << exe.partitions) - 1;
    kept_.listen(bench_.probes);
    for (uint32_t core = 0; core < exe.partitions; ++core) {
      uint64_t free = 0x10000;
      for (size_t i = 0; i < exe.slots.size(); ++i) {
        const exe::SlotT& slot = *exe.slots[i];
        bench_.bind_slot(core, static_cast<uint32_t>(i), free, slot.bytes);
        free += (slot.bytes + 0xfff) / 0x1000 * 0x1000;
      }
      bench_.load(core, exe.image, static_cast<uint32_t>(exe.slots.size()), mask);
    }
    for (uint32_t core = 0; core < exe.partitions; ++core) {
      bench_.start(core);
    }
    bench_.run();
    for (uint32_t core = 0; core < exe.partitions; ++core) {
      ASSERT_EQ(bench_.state(core), spec::seq::kStateDone) << bench_.cores[core]->fault().text();
    }
  }

  uint64_t findings(const std::set<size_t>& without) const {
    RaceSink checker(bench_.params);
    replay(kept_.events, without, checker);
    if (without.empty() && checker.count() != 0) {
      ADD_FAILURE() << text_of(checker.findings().front());
    }
    return checker.count();
  }

  CoreBench bench_{"board", {.no_data = true, .trace = false}};
  KeepingSink kept_;
};

TEST_P(EdgeRemoval, IsFoundWhereItLeavesConflictsUnordered) {
  const HappensBefore oracle(kept_.events);
  EXPECT_EQ(oracle.unordered({}), 0u) << "of the program as it was compiled";
  EXPECT_EQ(findings({}), 0u);
  size_t needed = 0;
  for (const auto& [edge, events] : oracle.edges()) {
    const bool unordered = oracle.unordered(events) != 0;
    needed += unordered ? 1 : 0;
    EXPECT_EQ(findings(events) != 0, unordered)
        << "unit " << edge.from_unit << " word " << edge.from_pc << " to unit " << edge.to_unit
        << " word " << edge.to_pc << " by semaphore " << edge.semaphore;
  }
  std::printf("%s: %zu events, %zu conflicts, %zu edges, %zu of them leave a conflict unordered\n",
              GetParam(), kept_.events.size(), oracle.conflicts(), oracle.edges().size(), needed);
  EXPECT_GT(needed, 0u) << "a program that shows nothing";
}

INSTANTIATE_TEST_SUITE_P(
    Programs, EdgeRemoval,
    ::testing::Values("data/dense", "data/mlp_sgd", "data/mlp_momentum", "data/mlp_adam",
                      "data/elementwise", "data/shapes", "data/reductions", "data/dots",
                      "data/integers", "data/bf16_dense", "data/collectives", "data/collectives_2d",
                      "data/conv_grad", "data/outside_ops", "data/sharded_outside",
                      "data/gspmd_shard_map", "data/auto_sharding", "data/mesh_parts",
                      "data/mesh_several", "golden/graphs/scatter", "golden/graphs/sum_pieces",
                      "golden/graphs/sums_of_two_axes", "golden/graphs/sum_odd_groups"),
    [](const auto& program) {
      std::string name = program.param;
      std::ranges::replace(name, '/', '_');
      return name;
    });

}  // namespace
}  // namespace tpu::model::test
