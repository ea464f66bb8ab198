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
  explicit CoreProbe(const ProbeSet& set) : set_(set) {}
  CoreProbe(const CoreProbe&) = delete;
  CoreProbe& operator=(const CoreProbe&) = delete;

  const PerfCounters& counters() const { return counters_; }
  void visit_state(spec::Archive& archive) { archive(counters_); }
  bool wants(ProbeEvent event) const { return set_.wants(event); }

  template <class Make>
  void program_begin(uint64_t now, const Make& make) {
    counters_.program_begin(now);
    set_.tell<ProgramEvent>(ProbeEvent::kProgram, &ProbeSink::program, make);
  }
  template <class Make>
  void program_end(uint64_t now, bool complete, const Make& make) {
    counters_.program_end(now, complete);
    set_.tell<ProgramEvent>(ProbeEvent::kProgram, &ProbeSink::program, make);
  }
  template <class Make>
  void issue(const Make& make) {
    set_.tell<IssueEvent>(ProbeEvent::kIssue, &ProbeSink::issue, make);
  }
  // `stall_cycles`: what a wait of the sequencer that is over has cost it.
  template <class Make>
  void wait(uint64_t stall_cycles, const Make& make) {
    counters_.add(spec::perf::kIssueStallCycles, stall_cycles);
    set_.tell<WaitEvent>(ProbeEvent::kWait, &ProbeSink::wait, make);
  }
  template <class Make>
  void take(const Make& make) {
    set_.tell<TakeEvent>(ProbeEvent::kTake, &ProbeSink::take, make);
  }
  // Takes the event itself: its walk needs a home. Ask wants() first.
  void access(const AccessEvent& event) {
    set_.tell<AccessEvent>(ProbeEvent::kAccess, &ProbeSink::access,
                           [&]() -> const AccessEvent& { return event; });
  }
  // Bytes as the counters name them.
  template <class Make>
  void flow(uint64_t hbm_read, uint64_t hbm_write, uint64_t ici_sent, const Make& make) {
    counters_.add(spec::perf::kHbmReadBytes, hbm_read);
    counters_.add(spec::perf::kHbmWriteBytes, hbm_write);
    counters_.add(spec::perf::kIciSentBytes, ici_sent);
    set_.tell<FlowEvent>(ProbeEvent::kFlow, &ProbeSink::flow, make);
  }
  template <class Make>
  void start(uint32_t queue, uint64_t now, const Make& make) {
    counters_.start(queue, now);
    set_.tell<StartEvent>(ProbeEvent::kStart, &ProbeSink::start, make);
  }
  template <class Make>
  void signal(const Make& make) {
    set_.tell<SignalEvent>(ProbeEvent::kSignal, &ProbeSink::signal, make);
  }
  // `worked`: the command had something to do.
  template <class Make>
  void done(uint32_t queue, uint64_t now, bool worked, const Make& make) {
    counters_.done(queue, now, worked);
    set_.tell<DoneEvent>(ProbeEvent::kDone, &ProbeSink::done, make);
  }
  template <class Make>
  void mark(const Make& make) {
    set_.tell<MarkEvent>(ProbeEvent::kMark, &ProbeSink::mark, make);
  }
  template <class Make>
  void fault(const Make& make) {
    set_.tell<FaultEvent>(ProbeEvent::kFault, &ProbeSink::fault, make);
  }
  template <class Make>
  void instruction(const Make& make) {
    counters_.add(spec::perf::kInstructions, 1);
    set_.tell<InstructionEvent>(ProbeEvent::kInstruction, &ProbeSink::instruction, make);
  }
  template <class Make>
  void semaphore(const Make& make) const {
    set_.tell<SemaphoreEvent>(ProbeEvent::kSemaphore, &ProbeSink::semaphore, make);
  }

  // No events: what only the counters see.
  void matmul(uint64_t flops) { counters_.add(spec::perf::kMxuFlops, flops); }
  void received(uint64_t bytes) { counters_.add(spec::perf::kIciReceivedBytes, bytes); }
  void signal_received() { counters_.signal_received(); }
  void upload(uint64_t now, int change) { counters_.upload(now, change); }

 private:
  const ProbeSet& set_;
  PerfCounters counters_;
};

}  // namespace tpu::model
