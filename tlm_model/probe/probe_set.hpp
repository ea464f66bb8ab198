// Who listens to the events of a board, and the fan-out to them. A sink is told the kinds of event
// that it wants, of the cores that it wants, in the order in which the sinks were added. An event
// that nobody wants costs one branch and is never made. Kernel thread only.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "probe/events.hpp"

namespace tpu::model {

class ProbeSink {
 public:
  virtual ~ProbeSink() = default;
  virtual void program(const ProgramEvent& /*event*/) {}
  virtual void issue(const IssueEvent& /*event*/) {}
  virtual void wait(const WaitEvent& /*event*/) {}
  virtual void take(const TakeEvent& /*event*/) {}
  virtual void access(const AccessEvent& /*event*/) {}
  virtual void flow(const FlowEvent& /*event*/) {}
  virtual void start(const StartEvent& /*event*/) {}
  virtual void signal(const SignalEvent& /*event*/) {}
  virtual void done(const DoneEvent& /*event*/) {}
  virtual void mark(const MarkEvent& /*event*/) {}
  virtual void fault(const FaultEvent& /*event*/) {}
  virtual void hart(const HartEvent& /*event*/) {}
  virtual void hart_pc(const HartPcEvent& /*event*/) {}
  virtual void instruction(const InstructionEvent& /*event*/) {}
  virtual void semaphore(const SemaphoreEvent& /*event*/) {}
  virtual void device_register(const RegisterEvent& /*event*/) {}
  virtual void non_finite(const NonFiniteEvent& /*event*/) {}
  virtual void assertion(const AssertionEvent& /*event*/) {}
  virtual void ring(const RingEvent& /*event*/) {}
  virtual void log(const LogEvent& /*event*/) {}
  virtual void upset(const UpsetEvent& /*event*/) {}
  virtual void transfer(const TransferEvent& /*event*/) {}
};

class ProbeSet {
 public:
  // The sink outlives the set, or its last event. Of several calls for one kind each counts.
  void add(ProbeSink& sink, std::initializer_list<ProbeEvent> events, CoreMask cores = kAllCores) {
    for (const ProbeEvent event : events) {
      listeners_[index(event)].push_back({&sink, cores});
      wanted_[index(event)] |= cores;
    }
  }
  // Harts run their instructions one by one from then on, to find it; bits and cycles stay.
  void watch_pc(uint32_t pc) { watched_pcs_.push_back(pc); }
  const std::vector<uint32_t>& watched_pcs() const { return watched_pcs_; }

  // Of any of the cores.
  bool wants(ProbeEvent event, CoreMask of) const { return (wanted_[index(event)] & of) != 0; }

  // Tells the event that `make` returns to those who want it of any core that it is of; without
  // one, `make` is not called.
  template <class Event, class Make>
  void tell(CoreMask of, ProbeEvent kind, void (ProbeSink::*hear)(const Event&),
            const Make& make) const {
    if (wants(kind, of)) [[unlikely]] {
      send(of, kind, hear, make());
    }
  }

 private:
  struct Listener {
    ProbeSink* sink;
    CoreMask cores;
  };

  static constexpr size_t index(ProbeEvent event) { return static_cast<size_t>(event); }
  template <class Event>
  void send(CoreMask of, ProbeEvent kind, void (ProbeSink::*hear)(const Event&),
            const Event& event) const {
    for (const Listener& listener : listeners_[index(kind)]) {
      if ((listener.cores & of) != 0) {
        (listener.sink->*hear)(event);
      }
    }
  }

  std::array<CoreMask, kProbeEvents> wanted_{};  // by somebody
  std::array<std::vector<Listener>, kProbeEvents> listeners_;
  std::vector<uint32_t> watched_pcs_;
};

}  // namespace tpu::model
