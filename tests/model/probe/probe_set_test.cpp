// Fan-out: who listens hears every event of the kinds that it asked for, in order; what nobody
// wants is never made.
#include "probe/probe_set.hpp"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

#include "probe/core_probe.hpp"

namespace tpu::model {
namespace {

class Recorder final : public ProbeSink {
 public:
  Recorder(std::string name, std::vector<std::string>& log) : name_(std::move(name)), log_(log) {}
  void program(const ProgramEvent& e) override { note("program", e.cycle); }
  void issue(const IssueEvent& e) override { note("issue", e.cycle); }
  void wait(const WaitEvent& e) override { note("wait", e.cycle); }
  void take(const TakeEvent& e) override { note("take", e.cycle); }
  void access(const AccessEvent& e) override {
    uint64_t bytes = 0;
    e.walk([&](const AccessRange& run) { bytes += run.bytes; });
    note("access" + std::to_string(bytes), e.cycle);
  }
  void flow(const FlowEvent& e) override { note("flow", e.cycle); }
  void start(const StartEvent& e) override { note("start", e.cycle); }
  void signal(const SignalEvent& e) override { note("signal", e.cycle); }
  void done(const DoneEvent& e) override { note("done", e.cycle); }
  void mark(const MarkEvent& e) override { note("mark", e.cycle); }
  void fault(const FaultEvent& e) override { note("fault", e.cycle); }
  void hart(const HartEvent& e) override { note("hart", e.cycle); }

 private:
  void note(const std::string& what, uint64_t cycle) {
    log_.push_back(name_ + " " + what + " " + std::to_string(cycle));
  }
  const std::string name_;
  std::vector<std::string>& log_;
};

using Kind = ProbeEvent;

// One event of each kind, as the blocks of a core tell them.
void tell_all(CoreProbe& probe, const ProbeSet& set) {
  const AccessRange range{.low = 8, .bytes = 5};
  const std::function<void(const RangeVisitor&)> walk = [&](const RangeVisitor& visit) {
    visit(range);
    visit(range);
  };
  probe.program_begin(1, [] { return ProgramEvent{.cycle = 1, .begin = true}; });
  probe.issue([] { return IssueEvent{.cycle = 2}; });
  probe.wait(0, [] { return WaitEvent{.cycle = 3, .begin = true}; });
  probe.take([] { return TakeEvent{.cycle = 4}; });
  probe.access({.cycle = 5, .source = {}, .extents = std::span(&range, 1), .walk = walk});
  probe.flow(0, 0, 0, 0, [] { return FlowEvent{.cycle = 6}; });
  probe.start(0, 7, [] { return StartEvent{.cycle = 7}; });
  probe.signal([] { return SignalEvent{.cycle = 8}; });
  probe.done(0, 9, true, [] { return DoneEvent{.cycle = 9}; });
  probe.mark([] { return MarkEvent{.cycle = 10}; });
  probe.fault([] { return FaultEvent{.cycle = 11}; });
  set.tell<HartEvent>(core_bit(0), Kind::kHart, &ProbeSink::hart,
                      [] { return HartEvent{.cycle = 12}; });
  probe.program_end(13, true, [] { return ProgramEvent{.cycle = 13}; });
}

TEST(ProbeSet, SinksHearTheKindsTheyAskedForInTheOrderTheyWereAdded) {
  std::vector<std::string> log;
  Recorder a("a", log);
  Recorder b("b", log);
  ProbeSet set;
  set.add(a, {Kind::kDone, Kind::kProgram});
  set.add(b, {Kind::kDone});
  CoreProbe probe(set, 0);
  tell_all(probe, set);
  EXPECT_EQ(log, (std::vector<std::string>{"a program 1", "a done 9", "b done 9", "a program 13"}));
}

TEST(ProbeSet, EveryKindReachesItsListener) {
  std::vector<std::string> log;
  Recorder all("x", log);
  ProbeSet set;
  for (size_t kind = 0; kind < kProbeEvents; ++kind) {
    set.add(all, {static_cast<Kind>(kind)});
  }
  CoreProbe probe(set, 0);
  tell_all(probe, set);
  EXPECT_EQ(log, (std::vector<std::string>{"x program 1", "x issue 2", "x wait 3", "x take 4",
                                           "x access10 5", "x flow 6", "x start 7", "x signal 8",
                                           "x done 9", "x mark 10", "x fault 11", "x hart 12",
                                           "x program 13"}));
}

TEST(ProbeSet, AnEventThatNobodyWantsIsNotMade) {
  std::vector<std::string> log;
  Recorder sink("x", log);
  ProbeSet set;
  set.add(sink, {Kind::kMark});
  int made = 0;
  const auto make = [&] {
    ++made;
    return DoneEvent{};
  };
  set.tell<DoneEvent>(core_bit(0), Kind::kDone, &ProbeSink::done, make);
  EXPECT_EQ(made, 0);
  EXPECT_FALSE(set.wants(Kind::kDone, kAllCores));
  set.add(sink, {Kind::kDone});
  set.tell<DoneEvent>(core_bit(0), Kind::kDone, &ProbeSink::done, make);
  EXPECT_EQ(made, 1);
  EXPECT_TRUE(set.wants(Kind::kDone, kAllCores));
}

TEST(ProbeSet, SinksHearOfTheirCoresOnly) {
  std::vector<std::string> log;
  Recorder all("all", log);
  Recorder one("one", log);
  ProbeSet set;
  set.add(all, {Kind::kMark});
  set.add(one, {Kind::kMark, Kind::kFlow}, core_bit(1));
  CoreProbe zero(set, 0);
  CoreProbe first(set, 1);
  zero.mark([] { return MarkEvent{.cycle = 3}; });
  first.mark([] { return MarkEvent{.cycle = 4}; });
  EXPECT_EQ(log, (std::vector<std::string>{"all mark 3", "all mark 4", "one mark 4"}));
  EXPECT_FALSE(zero.wants(Kind::kFlow));
  EXPECT_FALSE(zero.wants_flow(2));
  EXPECT_TRUE(zero.wants_flow(1));  // it comes to that core
  log.clear();
  zero.flow(0, 0, 0, 2, [] { return FlowEvent{.cycle = 5}; });
  zero.flow(0, 0, 0, 1, [] { return FlowEvent{.cycle = 6}; });
  EXPECT_EQ(log, (std::vector<std::string>{"one flow 6"}));
}

}  // namespace
}  // namespace tpu::model
