// Where the blocks of one core tell what happens: one call at each place. Counts what the board's
// own counters need, then hands the event to those who listen; `make` returns it and is called only
// for them.
#pragma once

#include <cstdint>

#include "probe/perf_counters.hpp"
#include "probe/probe_set.hpp"

namespace tpu::model {

class CoreProbe {
 public:
  CoreProbe(const ProbeSet& set, uint32_t core) : set_(set), me_(core_bit(core)) {}
  CoreProbe(const CoreProbe&) = delete;
  CoreProbe& operator=(const CoreProbe&) = delete;

  const PerfCounters& counters() const { return counters_; }
  void visit_state(spec::Archive& archive) { archive(counters_); }
  bool wants(ProbeEvent event) const { return set_.wants(event, me_); }

  template <class Make>
  void program_begin(uint64_t now, const Make& make) {
    counters_.program_begin(now);
    set_.tell<ProgramEvent>(me_, ProbeEvent::kProgram, &ProbeSink::program, make);
  }
  template <class Make>
  void program_end(uint64_t now, bool complete, const Make& make) {
    counters_.program_end(now, complete);
    set_.tell<ProgramEvent>(me_, ProbeEvent::kProgram, &ProbeSink::program, make);
  }
  template <class Make>
  void issue(const Make& make) {
    set_.tell<IssueEvent>(me_, ProbeEvent::kIssue, &ProbeSink::issue, make);
  }
  // `stall_cycles`: what a wait of the sequencer that is over has cost it.
  template <class Make>
  void wait(uint64_t stall_cycles, const Make& make) {
    counters_.add(spec::perf::kIssueStallCycles, stall_cycles);
    set_.tell<WaitEvent>(me_, ProbeEvent::kWait, &ProbeSink::wait, make);
  }
  template <class Make>
  void take(const Make& make) {
    set_.tell<TakeEvent>(me_, ProbeEvent::kTake, &ProbeSink::take, make);
  }
  // Takes the event itself: its walk needs a home. Ask wants() first.
  void access(const AccessEvent& event) {
    set_.tell<AccessEvent>(me_, ProbeEvent::kAccess, &ProbeSink::access,
                           [&]() -> const AccessEvent& { return event; });
  }
  // A flow is an event of the core that it goes to as well.
  bool wants_flow(uint32_t to) const { return set_.wants(ProbeEvent::kFlow, me_ | core_bit(to)); }
  // Bytes as the counters name them.
  template <class Make>
  void flow(uint64_t hbm_read, uint64_t hbm_write, uint64_t ici_sent, uint32_t to,
            const Make& make) {
    counters_.add(spec::perf::kHbmReadBytes, hbm_read);
    counters_.add(spec::perf::kHbmWriteBytes, hbm_write);
    counters_.add(spec::perf::kIciSentBytes, ici_sent);
    set_.tell<FlowEvent>(me_ | core_bit(to), ProbeEvent::kFlow, &ProbeSink::flow, make);
  }
  template <class Make>
  void start(uint32_t queue, uint64_t now, const Make& make) {
    counters_.start(queue, now);
    set_.tell<StartEvent>(me_, ProbeEvent::kStart, &ProbeSink::start, make);
  }
  template <class Make>
  void signal(const Make& make) {
    set_.tell<SignalEvent>(me_, ProbeEvent::kSignal, &ProbeSink::signal, make);
  }
  // `worked`: the command had something to do.
  template <class Make>
  void done(uint32_t queue, uint64_t now, bool worked, const Make& make) {
    counters_.done(queue, now, worked);
    set_.tell<DoneEvent>(me_, ProbeEvent::kDone, &ProbeSink::done, make);
  }
  template <class Make>
  void mark(const Make& make) {
    set_.tell<MarkEvent>(me_, ProbeEvent::kMark, &ProbeSink::mark, make);
  }
  template <class Make>
  void fault(const Make& make) {
    set_.tell<FaultEvent>(me_, ProbeEvent::kFault, &ProbeSink::fault, make);
  }
  template <class Make>
  void instruction(const Make& make) {
    counters_.add(spec::perf::kInstructions, 1);
    set_.tell<InstructionEvent>(me_, ProbeEvent::kInstruction, &ProbeSink::instruction, make);
  }
  template <class Make>
  void semaphore(const Make& make) const {
    set_.tell<SemaphoreEvent>(me_, ProbeEvent::kSemaphore, &ProbeSink::semaphore, make);
  }
  template <class Make>
  void non_finite(const Make& make) const {
    set_.tell<NonFiniteEvent>(me_, ProbeEvent::kNonFinite, &ProbeSink::non_finite, make);
  }
  template <class Make>
  void assertion(const Make& make) const {
    set_.tell<AssertionEvent>(me_, ProbeEvent::kAssertion, &ProbeSink::assertion, make);
  }

  // No events: what only the counters see.
  void matmul(uint64_t flops) { counters_.add(spec::perf::kMxuFlops, flops); }
  void received(uint64_t bytes) { counters_.add(spec::perf::kIciReceivedBytes, bytes); }
  void signal_received() { counters_.signal_received(); }
  void upload(uint64_t now, int change) { counters_.upload(now, change); }

 private:
  const ProbeSet& set_;
  const CoreMask me_;
  PerfCounters counters_;
};

}  // namespace tpu::model
