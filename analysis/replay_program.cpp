// A record, command by command.
#include "analysis/replay_program.hpp"

#include <algorithm>
#include <map>

#include "command/links.hpp"

namespace tpu::driver {
namespace {

using spec::RecordedCommand, spec::SequencerItem;

bool is_dma(const RecordedCommand& command) {
  const spec::Engine engine = spec::kQueues[command.queue].engine;
  return engine != spec::Engine::kMxu && engine != spec::Engine::kVpu &&
         engine != spec::Engine::kXlu;
}

bool reaches_others(const RecordedCommand& command, uint32_t core) {
  return command.remote() || (command.transfers() && command.to_core != core) ||
         std::ranges::any_of(command.signal, [&](const spec::SemaphoreUse& use) {
           return use.amount != 0 && use.core != core;
         });
}

uint32_t short_time(uint64_t cycles) {
  return static_cast<uint32_t>(std::min<uint64_t>(cycles, UINT32_MAX));
}

ReplayCommand compact(const RecordedCommand& command, uint32_t core, uint32_t number,
                      const RecordedCommand* front) {
  ReplayCommand to;
  to.size = command.bytes;
  to.number = number;
  to.op_id = command.op_id;
  const auto name = [&](uint16_t reached) { return reached == core ? kOwnCore : reached; };
  to.wait = command.wait;
  to.signal = command.signal;
  for (spec::SemaphoreUse& use : to.wait) {
    use.core = 0;  // always its own
  }
  for (spec::SemaphoreUse& use : to.signal) {
    use.core = use.amount != 0 ? name(use.core) : kOwnCore;
  }
  to.to_core = command.transfers() ? name(command.to_core) : kOwnCore;
  to.apart = reaches_others(command, core);
  to.from = command.from;
  to.to = command.to;
  to.transfers = command.transfers();
  to.remote = command.remote();
  to.fills = command.opcode == static_cast<uint8_t>(spec::Opcode::kFill);
  to.timed = !command.transfers() && command.works() && !is_dma(command);
  if (to.timed) {
    to.size = command.done - command.start;
    to.free_after = short_time(command.free_at - command.start);
  }
  if (front != nullptr && command.held > front->start) {
    to.held_after = short_time(command.held - front->start);
  }
  return to;
}

ReplayItem::Kind compact(SequencerItem::Kind kind) {
  using From = SequencerItem::Kind;
  using To = ReplayItem::Kind;
  switch (kind) {
    case From::kIssue:
      return To::kIssue;
    case From::kTake:
      return To::kTake;
    case From::kSignal:
      return To::kSignal;
    case From::kHost:
      return To::kHost;
    case From::kHalt:
      return To::kHalt;
  }
  return To::kHalt;
}

void add_item(ReplayProgram::Stream& to, const spec::RecordedCore& core, size_t index) {
  const SequencerItem& item = core.items[index];
  const uint64_t before = index == 0 ? core.begin : core.items[index - 1].went;
  ReplayItem each{.gap = item.arrived - before, .amount = item.amount, .kind = compact(item.kind)};
  if (item.kind == SequencerItem::Kind::kHost) {
    each.amount = static_cast<uint32_t>(to.host_waits.size());
    to.host_waits.push_back(item.went - item.arrived);
  }
  if (item.kind == SequencerItem::Kind::kIssue) {
    const RecordedCommand& command = core.commands[item.index];
    each.index = command.queue;
    each.apart = reaches_others(command, core.core);
  } else {
    each.index = static_cast<uint8_t>(item.index);
  }
  to.items.push_back(each);
}

ReplayProgram::Stream compact(const spec::RecordedCore& core) {
  ReplayProgram::Stream to;
  std::array<size_t, spec::kQueueCount> count{};
  for (const RecordedCommand& command : core.commands) {
    ++count[command.queue];
  }
  for (size_t q = 0; q < count.size(); ++q) {
    to.queues[q].reserve(count[q]);
  }
  for (uint32_t i = 0; i < core.commands.size(); ++i) {
    auto& queue = to.queues[core.commands[i].queue];
    const RecordedCommand* front = queue.empty() ? nullptr : &core.commands[queue.back().number];
    queue.push_back(compact(core.commands[i], core.core, i, front));
  }
  to.items.reserve(core.items.size());
  for (size_t i = 0; i < core.items.size(); ++i) {
    add_item(to, core, i);
  }
  return to;
}

bool same(const spec::SemaphoreUse& a, const spec::SemaphoreUse& b) {
  return a.amount == b.amount && a.semaphore == b.semaphore && a.takes == b.takes;
}

// But for the cores that it reaches.
bool same(const ReplayCommand& a, const ReplayCommand& b) {
  return a.size == b.size && a.free_after == b.free_after && a.held_after == b.held_after &&
         a.number == b.number && a.op_id == b.op_id && same(a.wait[0], b.wait[0]) &&
         same(a.wait[1], b.wait[1]) && same(a.signal[0], b.signal[0]) &&
         same(a.signal[1], b.signal[1]) && a.from == b.from && a.to == b.to &&
         a.transfers == b.transfers && a.remote == b.remote && a.fills == b.fills &&
         a.timed == b.timed && a.apart == b.apart;
}

bool same(const ReplayItem& a, const ReplayItem& b) {
  return a.gap == b.gap && a.amount == b.amount && a.index == b.index && a.kind == b.kind &&
         a.apart == b.apart;
}

struct Place {
  size_t queue, index;
};

using Own = std::array<std::vector<ReplayProgram::Core::Own>, spec::kQueueCount>;

// Whether two cores have the same to do but for a few commands, and these. `own`: those of `b` that
// are apart.
bool alike(const ReplayProgram::Stream& a, const ReplayProgram::Stream& b,
           std::vector<Place>& others, Own& own) {
  constexpr size_t kMost = 100;
  const auto same_items = [](const ReplayItem& i, const ReplayItem& k) { return same(i, k); };
  if (a.host_waits != b.host_waits || !std::ranges::equal(a.items, b.items, same_items)) {
    return false;
  }
  for (size_t q = 0; q < a.queues.size(); ++q) {
    for (uint32_t i = 0; i < a.queues[q].size(); ++i) {
      const ReplayCommand& each = b.queues[q][i];
      const bool other = !same(a.queues[q][i], each);
      if (other) {
        others.push_back({q, i});
      }
      if (other || each.apart) {
        own[q].push_back({i, each});
      }
    }
  }
  return others.size() <= kMost;
}

// Commands of some cores that are others. Those in front of them, too: how far apart they start is
// known when the first one starts.
void set_apart(ReplayProgram::Stream& stream, const std::vector<Place>& others) {
  for (const Place& place : others) {
    auto& queue = stream.queues[place.queue];
    queue[place.index].apart = true;
    queue[place.index - std::min<size_t>(place.index, 1)].apart = true;
  }
  std::array<size_t, spec::kQueueCount> issued{};
  for (ReplayItem& item : stream.items) {
    if (item.kind == ReplayItem::Kind::kIssue) {
      item.apart = stream.queues[item.index][issued[item.index]++].apart;
    }
  }
}

// Ways of commands of all cores, numbered from 1.
class Ways {
 public:
  explicit Ways(const ReplayProgram& program) : program_(program), links_(program.board, unused_) {}

  uint32_t number(size_t queue, size_t index) {
    std::vector<uint32_t> to_core;
    std::array<std::vector<uint32_t>, 2> signals;
    for (const ReplayProgram::Core& core : program_.cores) {
      const ReplayCommand& each = core.command(queue, index);
      if (!same(each, program_.cores.front().command(queue, index))) {
        return ReplayProgram::kNoWay;
      }
      to_core.push_back(core.reached(each.to_core));
      for (size_t i = 0; i < signals.size(); ++i) {
        signals[i].push_back(core.reached(each.signal[i].core));
      }
    }
    const uint32_t way = number(to_core);
    return number(signals[0]) != 0 && number(signals[1]) != 0 ? way : ReplayProgram::kNoWay;
  }

 private:
  uint32_t number(const std::vector<uint32_t>& to) {
    const auto [known, fresh] = numbers_.try_emplace(to, ReplayProgram::kNoWay);
    if (fresh && even(to)) {
      known->second = static_cast<uint32_t>(numbers_.size());
    }
    return known->second;
  }

  bool even(const std::vector<uint32_t>& to) const {
    std::map<spec::Links::Hop, uint32_t> uses;
    std::vector<uint32_t> reached = to, all;
    const auto from = [&](size_t i) { return program_.cores[i].core; };
    const uint32_t hops = links_.hops(from(0), to[0]);
    for (size_t i = 0; i < to.size(); ++i) {
      const spec::Links::Way way = links_.way(from(i), to[i]);
      if (way.count != hops) {
        return false;
      }
      for (uint32_t k = 0; k < way.count; ++k) {
        ++uses[way.hop[k]];
      }
      all.push_back(from(i));
    }
    std::ranges::sort(reached);
    std::ranges::sort(all);
    return reached == all &&
           std::ranges::all_of(uses, [&](const auto& each) { return each.second == hops; });
  }

  const ReplayProgram& program_;
  spec::BandwidthShare unused_;
  const spec::Links links_;
  std::map<std::vector<uint32_t>, uint32_t> numbers_{};
};

// A command that is apart though it reaches no other core is in front of one that is another one.
void find_ways(ReplayProgram& program) {
  Ways ways(program);
  const ReplayProgram::Core& core = program.cores.front();
  for (size_t q = 0; q < core.stream->queues.size(); ++q) {
    const std::vector<ReplayCommand>& commands = core.stream->queues[q];
    for (size_t i = 0; i < commands.size(); ++i) {
      const bool next_is_other =
          i + 1 < commands.size() && commands[i + 1].apart &&
          !std::ranges::all_of(program.cores, [&](const ReplayProgram::Core& each) {
            return same(each.command(q, i + 1), commands[i + 1]);
          });
      if (commands[i].apart) {
        program.ways[q].resize(i + 1, ReplayProgram::kNoWay);
        program.ways[q][i] = next_is_other ? ReplayProgram::kNoWay : ways.number(q, i);
      }
    }
  }
}

}  // namespace

const ReplayCommand& ReplayProgram::Core::own_or(size_t queue, size_t index,
                                                 const ReplayCommand& shared) const {
  const auto found = std::ranges::lower_bound(own[queue], index, {}, &Own::index);
  return found != own[queue].end() && found->index == index ? found->command : shared;
}

ReplayProgram::ReplayProgram(const spec::StepRecord& record) : board(spec::board_of(record)) {
  struct First {
    uint32_t core;
    std::shared_ptr<Stream> stream;
    std::vector<Place> others{};
  };
  std::vector<First> firsts;
  for (uint32_t i = 0; i < record.cores.size(); ++i) {
    const spec::RecordedCore& each = record.cores[i];
    Core& core = cores.emplace_back();
    core.core = each.core;
    core.begin = each.begin;
    core.commands = each.commands.size();
    Stream stream = compact(each);
    const auto like = std::ranges::find_if(firsts, [&](First& first) {
      std::vector<Place> others;
      core.own = {};
      const bool is = alike(*first.stream, stream, others, core.own);
      if (is) {
        first.others.insert(first.others.end(), others.begin(), others.end());
      }
      return is;
    });
    const size_t index = static_cast<size_t>(like - firsts.begin());
    if (like == firsts.end()) {
      core.own = {};
      firsts.push_back({i, std::make_shared<Stream>(std::move(stream))});
    }
    const First& first = firsts[index];
    core.like = first.core;
    core.stream = first.stream;
  }
  for (const First& first : firsts) {
    set_apart(*first.stream, first.others);
  }
  if (cores.size() > 1 && firsts.size() == 1) {
    find_ways(*this);
  }
}

}  // namespace tpu::driver
