// To which operation each cycle of a core's step belongs: that for which the foremost engine works,
// and of its commands that are under way the oldest. Matrix units come before the vector unit, then
// XLU, transfers to other cores, transfers in, transfers out: a transfer that arithmetic hides
// costs nothing, one that is waited for costs what it takes. A cycle in which nothing is under way
// belongs to no operation. What is under way changes only with a start or a done, so each of them
// ends a span; the spans of a step follow each other without gaps.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "probe/events.hpp"
#include "probe/op_time.hpp"

namespace tpu::model {

struct OpSpan {
  uint32_t op_id = OpTime::kNoOp;
  uint64_t begin = 0;
  uint64_t end = 0;  // may be `begin`

  bool empty() const { return end <= begin; }
};

// Of one core. Each call tells the span that ends at its cycle.
class OpSpans {
 public:
  // Queues, the foremost first.
  static constexpr std::array kRank = {
      spec::Queue::kMxu0,      spec::Queue::kMxu1,  spec::Queue::kMxu2,
      spec::Queue::kMxu3,      spec::Queue::kVpu,   spec::Queue::kXlu,
      spec::Queue::kDmaRemote, spec::Queue::kDmaIn, spec::Queue::kDmaOut};
  static_assert(kRank.size() == spec::kQueueCount);

  static bool works(const ProbeSource& source) {
    return source.opcode != static_cast<uint8_t>(spec::Opcode::kNop);
  }

  void begin_step(uint64_t now) {
    since_ = now;
    for (std::vector<Command>& commands : under_way_) {
      commands.clear();
    }
  }
  OpSpan end_step(uint64_t now) { return settle(now); }

  // Of a command that works().
  OpSpan start(const StartEvent& event) {
    const OpSpan span = settle(event.cycle);
    under_way_[event.source.unit].push_back({event.source.sequence, event.source.op_id});
    return span;
  }
  bool under_way(const ProbeSource& source) const {
    const std::vector<Command>& commands = under_way_[source.unit];
    return std::ranges::find(commands, source.sequence, &Command::sequence) != commands.end();
  }
  // Of one that is under way; others are of the step before.
  OpSpan done(const DoneEvent& event) {
    const OpSpan span = settle(event.cycle);
    std::vector<Command>& commands = under_way_[event.source.unit];
    commands.erase(std::ranges::find(commands, event.source.sequence, &Command::sequence));
    return span;
  }

 private:
  struct Command {
    uint64_t sequence;
    uint32_t op_id;
  };

  uint32_t foremost() const {
    for (const spec::Queue queue : kRank) {
      const std::vector<Command>& commands = under_way_[static_cast<size_t>(queue)];
      if (!commands.empty()) {
        return commands.front().op_id;
      }
    }
    return OpTime::kNoOp;
  }
  OpSpan settle(uint64_t now) {
    const OpSpan span{foremost(), since_, now};
    since_ = now;
    return span;
  }

  uint64_t since_ = 0;
  std::array<std::vector<Command>, spec::kQueueCount> under_way_{};
};

}  // namespace tpu::model
