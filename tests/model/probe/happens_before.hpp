// What a run of a program did, kept event by event, and an oracle for the happens-before checker:
// slow and simple. Each command and each step of a sequencer is a node; the order is the closure of
// program order, queue order, issue and semaphores as a bit matrix; two nodes conflict when their
// sorted runs of bytes share one that either writes. Shares no code with the checker.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <variant>
#include <vector>

#include "probe/probe_set.hpp"

namespace tpu::model::test {

struct KeptAccess {
  ProbeSource source;
  std::vector<AccessRange> runs;
};
using KeptEvent = std::variant<ProgramEvent, IssueEvent, TakeEvent, KeptAccess, StartEvent,
                               SignalEvent, DoneEvent>;

// Keeps everything that the checker listens to. HBM that is fresh at the start is forgotten.
class KeepingSink final : public ProbeSink {
 public:
  void listen(ProbeSet& probes);
  void program(const ProgramEvent& event) override;
  void issue(const IssueEvent& event) override { events.push_back(event); }
  void take(const TakeEvent& event) override { events.push_back(event); }
  void access(const AccessEvent& event) override;
  void start(const StartEvent& event) override { events.push_back(event); }
  void signal(const SignalEvent& event) override { events.push_back(event); }
  void done(const DoneEvent& event) override { events.push_back(event); }

  std::vector<KeptEvent> events;
};

// Tells a sink all events but those whose numbers are in `without`.
void replay(const std::vector<KeptEvent>& events, const std::set<size_t>& without, ProbeSink& sink);

// A semaphore edge as the program's text has it: the command that signals, the one that waits.
// Every core and every iteration has one of its own.
struct EdgeName {
  uint32_t from_unit, from_pc, semaphore, to_unit, to_pc;
  bool remote;
  auto operator<=>(const EdgeName&) const = default;
};

class HappensBefore {
 public:
  explicit HappensBefore(const std::vector<KeptEvent>& events);

  // By edge, the numbers of its signals and takes among the events: the k-th signal of a semaphore
  // meets the k-th take, each of the amount 1.
  const std::map<EdgeName, std::set<size_t>>& edges() const { return edges_; }
  size_t conflicts() const { return conflicts_.size(); }
  // Conflicting accesses that nothing orders once those events are gone.
  size_t unordered(const std::set<size_t>& without) const;

 private:
  using Unit = std::pair<uint32_t, uint32_t>;  // core, unit
  struct Node {
    Unit unit;
    std::vector<AccessRange> runs;
  };
  struct Order {  // `to` is behind `from`
    size_t from, to;
    size_t take;  // number of the event that says so, or kAlways
  };
  static constexpr size_t kAlways = SIZE_MAX;

  size_t node_of(const ProbeSource& source);
  size_t add_node(const ProbeSource& source, size_t behind);
  void add(size_t number, const TakeEvent& event);
  void add(size_t number, const SignalEvent& event);
  void find_conflicts();

  std::vector<Node> nodes_;
  std::vector<Order> orders_;  // by `to`
  std::vector<std::pair<size_t, size_t>> conflicts_;
  std::map<EdgeName, std::set<size_t>> edges_;

  std::map<Unit, size_t> last_;                             // node of a unit
  std::map<std::pair<uint32_t, uint64_t>, size_t> issued_;  // by core and sequence: issue
  std::map<std::tuple<uint32_t, uint32_t, uint64_t>, size_t> commands_;
  struct Sent {
    size_t node, number;
    ProbeSource source;
  };
  std::map<std::pair<uint32_t, uint32_t>, std::vector<Sent>> signals_;  // by core and semaphore
  std::map<std::pair<uint32_t, uint32_t>, size_t> taken_;
};

}  // namespace tpu::model::test
