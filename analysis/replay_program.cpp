// A record, command by command.
#include "analysis/replay_program.hpp"

#include <algorithm>
#include <map>
#include <tuple>

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

ReplayCommand compact(const RecordedCommand& command, uint32_t number,
                      const RecordedCommand* front) {
  ReplayCommand to;
  to.size = command.bytes;
  to.number = number;
  to.op_id = command.op_id;
  to.wait = command.wait;
  to.signal = command.signal;
  to.to_core = command.to_core;
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

void add_item(ReplayProgram::Core& to, const spec::RecordedCore& core, size_t index) {
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

ReplayProgram::Core compact(const spec::RecordedCore& core) {
  ReplayProgram::Core to{.core = core.core, .begin = core.begin, .commands = core.commands.size()};
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
    queue.push_back(compact(core.commands[i], i, front));
    queue.back().apart = reaches_others(core.commands[i], core.core);
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

bool same(const ReplayCommand& a, const ReplayCommand& b) {
  return a.size == b.size && a.free_after == b.free_after && a.held_after == b.held_after &&
         a.number == b.number && a.op_id == b.op_id && same(a.wait[0], b.wait[0]) &&
         same(a.wait[1], b.wait[1]) && same(a.signal[0], b.signal[0]) &&
         same(a.signal[1], b.signal[1]) && a.from == b.from && a.to == b.to &&
         a.transfers == b.transfers && a.remote == b.remote && a.fills == b.fills &&
         a.timed == b.timed;
}

bool same(const ReplayItem& a, const ReplayItem& b) {
  return a.gap == b.gap && a.amount == b.amount && a.index == b.index && a.kind == b.kind &&
         a.apart == b.apart;
}

struct Place {
  size_t queue, index;
};

// Whether two cores have the same to do but for a few commands, and these.
bool alike(const ReplayProgram::Core& a, const ReplayProgram::Core& b, std::vector<Place>& others) {
  constexpr size_t kMost = 100;
  const auto same_items = [](const ReplayItem& i, const ReplayItem& k) { return same(i, k); };
  if (a.host_waits != b.host_waits || !std::ranges::equal(a.items, b.items, same_items)) {
    return false;
  }
  for (size_t q = 0; q < a.queues.size(); ++q) {
    for (size_t i = 0; i < a.queues[q].size(); ++i) {
      if (!same(a.queues[q][i], b.queues[q][i])) {
        others.push_back({q, i});
      }
    }
  }
  return others.size() <= kMost;
}

// Commands of some cores that are others. Those in front of them, too: how far apart they start is
// known when the first one starts.
void set_apart(ReplayProgram& program, std::vector<Place> places) {
  for (size_t i = places.size(); i-- > 0;) {
    if (places[i].index > 0) {
      places.push_back({places[i].queue, places[i].index - 1});
    }
  }
  for (const Place& place : places) {
    for (ReplayProgram::Core& core : program.cores) {
      if (place.index < core.queues[place.queue].size()) {
        core.queues[place.queue][place.index].apart = true;
      }
    }
    if (place.index < program.ways[place.queue].size()) {
      program.ways[place.queue][place.index] = ReplayProgram::kNoWay;
    }
  }
  for (ReplayProgram::Core& core : program.cores) {
    std::array<size_t, spec::kQueueCount> issued{};
    for (ReplayItem& item : core.items) {
      if (item.kind == ReplayItem::Kind::kIssue) {
        item.apart = core.queues[item.index][issued[item.index]++].apart;
      }
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
      const ReplayCommand& each = core.queues[queue][index];
      to_core.push_back(each.transfers ? each.to_core : core.core);
      for (size_t i = 0; i < signals.size(); ++i) {
        signals[i].push_back(each.signal[i].amount != 0 ? each.signal[i].core : core.core);
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
    std::map<std::tuple<uint32_t, bool, bool>, uint32_t> uses;
    std::vector<uint32_t> reached = to, all;
    const auto from = [&](size_t i) { return program_.cores[i].core; };
    const uint32_t hops = links_.hops(from(0), to[0]);
    for (size_t i = 0; i < to.size(); ++i) {
      const spec::Links::Way way = links_.way(from(i), to[i]);
      if (way.count != hops) {
        return false;
      }
      for (uint32_t k = 0; k < way.count; ++k) {
        ++uses[{way.hop[k].chip, way.hop[k].y, way.hop[k].up}];
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

void find_ways(ReplayProgram& program) {
  Ways ways(program);
  const ReplayProgram::Core& core = program.cores.front();
  for (size_t q = 0; q < core.queues.size(); ++q) {
    for (size_t i = 0; i < core.queues[q].size(); ++i) {
      if (core.queues[q][i].apart) {
        program.ways[q].resize(i + 1, ReplayProgram::kNoWay);
        program.ways[q][i] = ways.number(q, i);
      }
    }
  }
}

}  // namespace

ReplayProgram::ReplayProgram(const spec::StepRecord& record) : board(spec::board_of(record)) {
  for (const spec::RecordedCore& core : record.cores) {
    cores.push_back(compact(core));
  }
  std::vector<Place> apart;
  for (uint32_t i = 0; i < cores.size(); ++i) {
    uint32_t& like = cores[i].like;
    for (like = 0; like < i; ++like) {
      std::vector<Place> others;
      if (cores[like].like == like && alike(cores[like], cores[i], others)) {
        apart.insert(apart.end(), others.begin(), others.end());
        break;
      }
    }
  }
  if (cores.size() > 1 && std::ranges::all_of(cores, [](const Core& c) { return c.like == 0; })) {
    find_ways(*this);
  }
  if (!apart.empty()) {
    set_apart(*this, std::move(apart));
  }
}

}  // namespace tpu::driver
