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

#include "tpu/spec/isa.hpp"

namespace tpu::spec {

struct OpSpan {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t op_id = kNone;
  uint32_t queue = kNone;  // the foremost
  uint64_t sequence = 0;   // of its oldest command
  uint64_t begin = 0;
  uint64_t end = 0;  // may be `begin`

  bool empty() const { return end <= begin; }
};

// Of one core. Each call tells the span that ends at its cycle.
class OpSpans {
 public:
  // Queues, the foremost first.
  static constexpr std::array kRank = {Queue::kMxu0,      Queue::kMxu1,  Queue::kMxu2,
                                       Queue::kMxu3,      Queue::kVpu,   Queue::kXlu,
                                       Queue::kDmaRemote, Queue::kDmaIn, Queue::kDmaOut};
  static_assert(kRank.size() == kQueueCount);

  // A command, as its core names it.
  struct Command {
    uint32_t queue;
    uint64_t sequence;
    uint32_t op_id;
  };

  static bool works(uint8_t opcode) { return opcode != static_cast<uint8_t>(Opcode::kNop); }

  void begin_step(uint64_t now) {
    since_ = now;
    for (std::vector<Command>& commands : under_way_) {
      commands.clear();
    }
  }
  OpSpan end_step(uint64_t now) { return settle(now); }
  // What is under way stays.
  OpSpan cut(uint64_t now) { return settle(now); }

  // Of a command that works().
  OpSpan start(uint64_t now, const Command& command) {
    const OpSpan span = settle(now);
    under_way_[command.queue].push_back(command);
    return span;
  }
  bool under_way(uint32_t queue, uint64_t sequence) const {
    const std::vector<Command>& commands = under_way_[queue];
    return std::ranges::find(commands, sequence, &Command::sequence) != commands.end();
  }
  // Of one that is under way; others are of the step before.
  OpSpan done(uint64_t now, uint32_t queue, uint64_t sequence) {
    const OpSpan span = settle(now);
    std::vector<Command>& commands = under_way_[queue];
    commands.erase(std::ranges::find(commands, sequence, &Command::sequence));
    return span;
  }

 private:
  OpSpan settle(uint64_t now) {
    OpSpan span{.begin = since_, .end = now};
    since_ = now;
    for (const Queue queue : kRank) {
      const std::vector<Command>& commands = under_way_[static_cast<size_t>(queue)];
      if (!commands.empty()) {
        span.op_id = commands.front().op_id;
        span.queue = commands.front().queue;
        span.sequence = commands.front().sequence;
        break;
      }
    }
    return span;
  }

  uint64_t since_ = 0;
  std::array<std::vector<Command>, kQueueCount> under_way_{};
};

}  // namespace tpu::spec
