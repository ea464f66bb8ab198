// The order as a bit matrix.
#include "happens_before.hpp"

#include <algorithm>
#include <stdexcept>

namespace tpu::model::test {
namespace {

constexpr uint32_t kSequencer = static_cast<uint32_t>(kSequencerUnit);

// Runs of one node on one memory, by address.
std::vector<AccessRange> sorted(std::vector<AccessRange> runs) {
  std::ranges::sort(
      runs, {}, [](const AccessRange& run) { return std::tuple(run.owner, run.memory, run.low); });
  return runs;
}

bool conflict(const std::vector<AccessRange>& a, const std::vector<AccessRange>& b) {
  for (const AccessRange& mine : a) {
    for (const AccessRange& other : b) {
      const bool same = mine.owner == other.owner && mine.memory == other.memory;
      if (same && (mine.write || other.write) && mine.low < other.low + other.bytes &&
          other.low < mine.low + mine.bytes) {
        return true;
      }
    }
  }
  return false;
}

// The hull of a node's runs by memory, to leave out most pairs.
using Hulls = std::map<std::pair<uint32_t, ProbeMemory>, std::pair<uint64_t, uint64_t>>;
Hulls hulls_of(const std::vector<AccessRange>& runs) {
  Hulls hulls;
  for (const AccessRange& run : runs) {
    const auto [at, fresh] =
        hulls.insert({{run.owner, run.memory}, {run.low, run.low + run.bytes}});
    at->second.first = std::min(at->second.first, run.low);
    at->second.second = std::max(at->second.second, run.low + run.bytes);
  }
  return hulls;
}

bool meet(const Hulls& a, const Hulls& b) {
  return std::ranges::any_of(a, [&](const auto& mine) {
    const auto other = b.find(mine.first);
    return other != b.end() && mine.second.first < other->second.second &&
           other->second.first < mine.second.second;
  });
}

}  // namespace

void KeepingSink::listen(ProbeSet& probes) {
  probes.add(*this,
             {ProbeEvent::kProgram, ProbeEvent::kIssue, ProbeEvent::kTake, ProbeEvent::kAccess,
              ProbeEvent::kStart, ProbeEvent::kSignal, ProbeEvent::kDone});
}

void KeepingSink::program(const ProgramEvent& event) {
  ProgramEvent kept = event;
  kept.fresh = {};
  events.push_back(kept);
}

void KeepingSink::access(const AccessEvent& event) {
  KeptAccess kept{event.source, {}};
  event.walk([&](const AccessRange& range) { kept.runs.push_back(range); });
  events.push_back(std::move(kept));
}

void replay(const std::vector<KeptEvent>& events, const std::set<size_t>& without,
            ProbeSink& sink) {
  struct Teller {
    ProbeSink& sink;
    void operator()(const ProgramEvent& event) const { sink.program(event); }
    void operator()(const IssueEvent& event) const { sink.issue(event); }
    void operator()(const TakeEvent& event) const { sink.take(event); }
    void operator()(const StartEvent& event) const { sink.start(event); }
    void operator()(const SignalEvent& event) const { sink.signal(event); }
    void operator()(const DoneEvent& event) const { sink.done(event); }
    void operator()(const KeptAccess& event) const {
      const std::function<void(const RangeVisitor&)> walk = [&](const RangeVisitor& visit) {
        std::ranges::for_each(event.runs, visit);
      };
      sink.access({.cycle = 0, .source = event.source, .extents = event.runs, .walk = walk});
    }
  };
  for (size_t number = 0; number < events.size(); ++number) {
    if (!without.contains(number)) {
      std::visit(Teller{sink}, events[number]);
    }
  }
}

HappensBefore::HappensBefore(const std::vector<KeptEvent>& events) {
  for (size_t number = 0; number < events.size(); ++number) {
    const KeptEvent& event = events[number];
    if (const auto* issue = std::get_if<IssueEvent>(&event)) {
      ProbeSource sequencer = issue->source;
      sequencer.unit = kSequencer;
      issued_[{sequencer.core, sequencer.sequence}] = node_of(sequencer);
    } else if (const auto* take = std::get_if<TakeEvent>(&event)) {
      add(number, *take);
    } else if (const auto* signal = std::get_if<SignalEvent>(&event)) {
      add(number, *signal);
    } else if (const auto* access = std::get_if<KeptAccess>(&event)) {
      Node& node = nodes_[node_of(access->source)];
      node.runs.insert(node.runs.end(), access->runs.begin(), access->runs.end());
    } else if (const auto* start = std::get_if<StartEvent>(&event)) {
      node_of(start->source);
    }
  }
  for (const auto& [semaphore, signals] : signals_) {
    if (signals.size() != taken_[semaphore]) {
      throw std::logic_error("a semaphore whose signals are not taken one by one");
    }
  }
  find_conflicts();
}

// Behind the last node of the same unit and, of a command, behind its issue. A sequencer has a node
// for each event.
size_t HappensBefore::node_of(const ProbeSource& source) {
  if (source.unit == kSequencer) {
    return add_node(source, kAlways);
  }
  const std::tuple key(source.core, source.unit, source.sequence);
  const auto known = commands_.find(key);
  if (known != commands_.end()) {
    return known->second;
  }
  return commands_[key] = add_node(source, issued_.at({source.core, source.sequence}));
}

size_t HappensBefore::add_node(const ProbeSource& source, size_t behind) {
  const Unit unit(source.core, source.unit);
  const size_t node = nodes_.size();
  nodes_.push_back({unit, {}});
  if (const auto before = last_.find(unit); before != last_.end()) {
    orders_.push_back({before->second, node, kAlways});
  }
  if (behind != kAlways) {
    orders_.push_back({behind, node, kAlways});
  }
  last_[unit] = node;
  return node;
}

void HappensBefore::add(size_t number, const TakeEvent& event) {
  const std::pair key(event.source.core, event.semaphore);
  const size_t node = node_of(event.source);
  if (event.threshold != 1 || !event.takes) {
    throw std::logic_error("a wait for another count than 1, or one that does not take it");
  }
  const Sent& sent = signals_[key].at(taken_[key]++);
  orders_.push_back({sent.node, node, number});
  std::set<size_t>& edge = edges_[{.from_unit = sent.source.unit,
                                   .from_pc = sent.source.pc,
                                   .semaphore = event.semaphore,
                                   .to_unit = event.source.unit,
                                   .to_pc = event.source.pc,
                                   .remote = sent.source.core != event.source.core}];
  edge.insert(sent.number);
  edge.insert(number);
}

void HappensBefore::add(size_t number, const SignalEvent& event) {
  if (event.amount != 1) {
    throw std::logic_error("a signal of another count than 1");
  }
  signals_[{event.to_core, event.semaphore}].push_back(
      {node_of(event.source), number, event.source});
}

void HappensBefore::find_conflicts() {
  std::vector<Hulls> hulls;
  for (Node& node : nodes_) {
    node.runs = sorted(std::move(node.runs));
    hulls.push_back(hulls_of(node.runs));
  }
  for (size_t b = 0; b < nodes_.size(); ++b) {
    for (size_t a = 0; a < b && !hulls[b].empty(); ++a) {
      if (nodes_[a].unit != nodes_[b].unit && meet(hulls[a], hulls[b]) &&
          conflict(nodes_[a].runs, nodes_[b].runs)) {
        conflicts_.emplace_back(a, b);
      }
    }
  }
}

size_t HappensBefore::unordered(const std::set<size_t>& without) const {
  constexpr size_t kBits = 64;
  const size_t words = (nodes_.size() + kBits - 1) / kBits;
  std::vector<uint64_t> behind(nodes_.size() * words);  // a row of bits by node: what is before it
  std::vector<std::vector<size_t>> before(nodes_.size());
  for (const Order& order : orders_) {
    if (order.take == kAlways || !without.contains(order.take)) {
      before[order.to].push_back(order.from);
    }
  }
  for (size_t node = 0; node < nodes_.size(); ++node) {  // causes come before effects
    for (const size_t from : before[node]) {
      for (size_t word = 0; word <= from / kBits; ++word) {
        behind[node * words + word] |= behind[from * words + word];
      }
      behind[node * words + from / kBits] |= uint64_t{1} << from % kBits;
    }
  }
  return static_cast<size_t>(std::ranges::count_if(conflicts_, [&](const auto& pair) {
    return (behind[pair.second * words + pair.first / kBits] >> pair.first % kBits & 1) == 0;
  }));
}

}  // namespace tpu::model::test
