// The list of changes, and their order.
#include "analysis/what_if.hpp"

#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>

#include "analysis/changed_steps.hpp"
#include "analysis/for_all.hpp"

namespace tpu::driver {
namespace {

constexpr size_t kMostOps = 15;     // by the cycles that belong to them
constexpr int64_t kNoLimit = 4096;  // times a bandwidth or the length of a queue

// A cost: `apply` multiplies it by the factor, 0.5 or 0.
struct Cost {
  WhatIf what;
  std::function<void(CostChange&, double factor)> apply;
};

void widen(int64_t& rate, double factor) {
  rate *= factor == 0 ? kNoLimit : static_cast<int64_t>(1 / factor);
}
void shorten(int64_t& time, double factor) {
  time = static_cast<int64_t>(static_cast<double>(time) * factor);
}

std::vector<Cost> board_costs() {
  return {
      {{.name = "HBM bandwidth", .removed = "no limit", .halved = "hbm.gbps_per_chip x 2"},
       [](CostChange& c, double f) { widen(c.board.hbm.gbps_per_chip, f); }},
      {{.name = "latency of local transfers",
        .removed = "none",
        .halved = "dma.in_fixed_ns, dma.out_fixed_ns, dma.local_fixed_ns / 2"},
       [](CostChange& c, double f) {
         shorten(c.board.dma.in_fixed_ns, f);
         shorten(c.board.dma.out_fixed_ns, f);
         shorten(c.board.dma.local_fixed_ns, f);
       }},
      {{.name = "on-chip copies", .removed = "no limit", .halved = "dma.local_bytes_per_cycle x 2"},
       [](CostChange& c, double f) { widen(c.board.dma.local_bytes_per_cycle, f); }},
      {{.name = "transfers in flight of a DMA queue",
        .removed = "no limit",
        .halved = "dma.in_flight x 2"},
       [](CostChange& c, double f) { c.board.dma.in_flight *= f == 0 ? 16 : 2; }},
      {{.name = "bandwidth of links",
        .removed = "no limit",
        .halved = "ici.link_gbps, ici.core_port_gbps x 2"},
       [](CostChange& c, double f) {
         widen(c.board.ici.link_gbps, f);
         widen(c.board.ici.core_port_gbps, f);
       }},
      {{.name = "latency of links",
        .removed = "none",
        .halved = "ici.hop_ns, extra_hop_ns, local_ns, control_hop_ns / 2"},
       [](CostChange& c, double f) {
         shorten(c.board.ici.hop_ns, f);
         shorten(c.board.ici.extra_hop_ns, f);
         shorten(c.board.ici.local_ns, f);
         shorten(c.board.ici.control_hop_ns, f);
       }},
      {{.name = "length of queues", .removed = "no limit", .halved = "core.queue_depth x 2"},
       [](CostChange& c, double f) { c.board.core.queue_depth *= f == 0 ? kNoLimit : 2; }},
      {{.name = "matrix units", .removed = "no time", .halved = "twice as fast"},
       [](CostChange& c, double f) { c.mxu = f; }},
      {{.name = "vector unit", .removed = "no time", .halved = "twice as fast"},
       [](CostChange& c, double f) { c.vpu = f; }},
      {{.name = "XLU", .removed = "no time", .halved = "twice as fast"},
       [](CostChange& c, double f) { c.xlu = f; }},
      {{.name = "sequencer", .removed = "no time", .halved = "twice as fast"},
       [](CostChange& c, double f) { c.sequencer = f; }},
  };
}

std::vector<Cost> costs_of(const spec::StepRecord& record, const StepAccount& account) {
  std::vector<Cost> costs = board_costs();
  std::vector<std::pair<uint64_t, uint32_t>> ops;
  for (const auto& [id, op] : account.ops) {
    ops.emplace_back(op.total(), id);
  }
  std::ranges::sort(ops, std::greater<>());
  ops.resize(std::min(ops.size(), kMostOps));
  for (const auto& [cycles, id] : ops) {
    const std::string name =
        id < record.ops.size() ? record.ops[id].name : "op " + std::to_string(id);
    costs.push_back({{.name = name, .removed = "no time", .halved = "half", .op = id},
                     [op = id](CostChange& c, double f) {
                       c.op = op;
                       c.op_factor = f;
                     }});
  }
  return costs;
}

// Tells how far a known number of replays is.
class Count {
 public:
  Count(size_t all, const std::function<void(double)>& done) : all_(all), done_(done) {}

  void next() {
    const std::lock_guard lock(mutex_);
    done_(std::min(1.0, static_cast<double>(++over_) / static_cast<double>(all_)));
  }

 private:
  const size_t all_;
  const std::function<void(double)>& done_;
  std::mutex mutex_;
  size_t over_ = 0;
};

}  // namespace

std::vector<WhatIf> best_changes(const spec::StepRecord& record, const ReplayProgram& program,
                                 const StepAccount& account, const StepTiming& timing, size_t most,
                                 unsigned threads, const std::function<void(double)>& done) {
  if (most == 0) {
    return {};
  }
  const ChangedSteps steps(record, program, timing);
  std::vector<Cost> costs = costs_of(record, account);
  Count count(costs.size() + std::min(costs.size(), most), done);
  const auto times_with = [&](const Cost& cost, double factor) {
    CostChange change = no_change(record);
    cost.apply(change, factor);
    const ChangedSteps::Times times = steps.with(change);
    count.next();
    return times;
  };
  for_all(costs.size(), threads,
          [&](size_t i) { costs[i].what.cycles_without = times_with(costs[i], 0).cycles; });
  std::erase_if(costs, [&](const Cost& c) { return c.what.cycles_without >= timing.cycles(); });
  std::ranges::stable_sort(costs, {}, [](const Cost& c) { return c.what.cycles_without; });
  costs.resize(std::min(costs.size(), most));
  for_all(costs.size(), threads, [&](size_t i) {
    const ChangedSteps::Times times = times_with(costs[i], 0.5);
    costs[i].what.cycles_at_half = times.cycles;
    costs[i].what.halved_skew = times.skew;
  });
  std::vector<WhatIf> changes;
  for (Cost& cost : costs) {
    changes.push_back(std::move(cost.what));
  }
  return changes;
}

}  // namespace tpu::driver
