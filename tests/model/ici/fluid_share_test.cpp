// Shared bandwidth: max-min fair rates, recomputed at start and end of flows; exact integer times.
#include "kernel/fluid_share.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <systemc>

#include "board/board_loader.hpp"
#include "ici/ici.hpp"
#include "kernel/cycles.hpp"

namespace tpu::model {
namespace {

class FluidBench : public ::testing::Test {
 protected:
  Flow& make(std::initializer_list<ResourceId> resources, uint64_t bytes) {
    Flow& flow = flows.emplace_back();
    for (const ResourceId id : resources) {
      flow.add(id);
    }
    flow.set_bytes(bytes);
    return flow;
  }
  void advance_to(uint64_t cycle) { sc_core::sc_start(from_cycles(cycle - now_cycles())); }

  Agenda agenda{"agenda"};
  FluidShare fluid{"fluid", agenda};
  std::deque<Flow> flows;
};

TEST_F(FluidBench, OneFlowRunsAtTheRateOfItsNarrowestResource) {
  const ResourceId wide = fluid.add_resource(100, 1);
  const ResourceId narrow = fluid.add_resource(10, 1);
  Flow& flow = make({wide, narrow}, 1000);
  fluid.start(flow);
  advance_to(1000);
  EXPECT_FALSE(flow.active());
  EXPECT_EQ(flow.done_at(), 100u);
  EXPECT_EQ(fluid.bytes_passed(narrow), 1000u);
}

TEST_F(FluidBench, SharesChangeWhenFlowsStartAndEnd) {
  const ResourceId link = fluid.add_resource(10, 1);
  Flow& a = make({link}, 1000);
  Flow& b = make({link}, 200);
  fluid.start(a);
  advance_to(20);  // 200 bytes of a have passed
  fluid.start(b);  // 5 bytes a cycle each: b needs 40 cycles
  advance_to(500);
  EXPECT_EQ(b.done_at(), 60u);
  EXPECT_EQ(a.done_at(), 120u);  // 1000 - 200 - 200 = 600 at the full rate
}

TEST_F(FluidBench, LeftoverOfALimitedFlowGoesToTheOthers) {
  const ResourceId shared = fluid.add_resource(30, 1);
  const ResourceId slow = fluid.add_resource(4, 1);
  Flow& limited = make({shared, slow}, 400);
  Flow& free = make({shared}, 2600);
  fluid.start(limited);
  fluid.start(free);
  advance_to(1000);
  EXPECT_EQ(limited.done_at(), 100u);
  EXPECT_EQ(free.done_at(), 100u);  // 26 bytes a cycle
}

TEST_F(FluidBench, AResourceListedTwiceCarriesTheBytesTwice) {
  const ResourceId memory = fluid.add_resource(10, 1);
  Flow& copy = make({memory, memory}, 100);
  fluid.start(copy);
  advance_to(100);
  EXPECT_EQ(copy.done_at(), 20u);
}

TEST_F(FluidBench, OrderOfStartsInACycleDoesNotMatter) {
  const ResourceId link = fluid.add_resource(7, 3);
  Flow& a = make({link}, 1001);
  Flow& b = make({link}, 77);
  Flow& c = make({link}, 77);
  fluid.start(c);
  fluid.start(a);
  fluid.start(b);
  advance_to(5000);
  EXPECT_EQ(b.done_at(), c.done_at());
  EXPECT_EQ(b.done_at(),
            100u);  // 77 * 3 bytes at 7/3 a cycle; rates are rounded down, so a cycle late
  EXPECT_EQ(a.done_at(), 496u);  // 1001 + 154 bytes at 7/3, rounded up
}

TEST_F(FluidBench, EmptyFlowEndsAtOnce) {
  Flow& flow = make({}, 0);
  sc_core::sc_event event;
  flow.set_event(&event);
  fluid.start(flow);
  EXPECT_FALSE(flow.active());
  EXPECT_EQ(flow.done_at(), 0u);
}

class NoPeer : public sc_core::sc_module, public RemoteIf {
 public:
  explicit NoPeer(sc_core::sc_module_name name) : sc_module(name) {}
  RemoteAnswer remote_open(const RemoteWrite&, RemotePlace*) override { return {}; }
  void remote_landed(const RemoteWrite&, std::span<const uint8_t>) override {}
  RemoteAnswer remote_signal(const RemoteSignal&) override { return {}; }
};

TEST_F(FluidBench, TorusRoutesXThenYAndSharesLinks) {
  const spec::BoardParams params = spec::load_board("v3_8");
  Ici ici("ici", params, fluid);
  std::deque<NoPeer> peers;
  for (uint32_t i = 0; i < 8; ++i) {
    ici.connect(i, peers.emplace_back(("peer" + std::to_string(i)).c_str()));
  }
  EXPECT_EQ(ici.hops(0, 1), 0u);
  EXPECT_EQ(ici.hops(0, 2), 1u);
  EXPECT_EQ(ici.hops(0, 4), 1u);
  EXPECT_EQ(ici.hops(0, 7), 2u);
  EXPECT_EQ(ici.data_latency(0, 7), spec::cycles_from_ns(params, params.ici.hop_ns) +
                                        spec::cycles_from_ns(params, params.ici.extra_hop_ns));
  constexpr uint64_t kBytes = 1 << 20;
  const double link = 82.0 * 0.85 * 1000 / 940;
  const auto run_pair = [&](uint32_t from0, uint32_t to0, uint32_t from1, uint32_t to1) {
    const uint64_t begin = now_cycles();
    Flow* pair[2];
    const uint32_t ends[2][2] = {{from0, to0}, {from1, to1}};
    for (int i = 0; i < 2; ++i) {
      pair[i] = &flows.emplace_back();
      pair[i]->set_bytes(kBytes);
      ici.add_path(ends[i][0], ends[i][1], *pair[i]);
      fluid.start(*pair[i]);
    }
    advance_to(begin + 100000);
    return static_cast<double>(std::max(pair[0]->done_at(), pair[1]->done_at()) - begin);
  };
  sc_core::sc_start(sc_core::SC_ZERO_TIME);
  EXPECT_NEAR(run_pair(0, 2, 1, 3), 2 * kBytes / link, 2);  // both cores of chip 0 over its x link
  EXPECT_NEAR(run_pair(0, 2, 1, 5), kBytes / link, 2);      // one over x, one over y
  EXPECT_NEAR(run_pair(0, 2, 3, 1), kBytes / link, 2);      // directions are separate
  EXPECT_NEAR(run_pair(0, 6, 2, 7), 2 * kBytes / link,
              2);  // 0 goes x then y: shares chip 1's y link
}

}  // namespace
}  // namespace tpu::model
