// Who listens to the events of a board, and the fan-out to them. A sink is told the kinds of event
// that it wants, in the order in which the sinks were added. An event that nobody wants costs one
// branch and is never made. Kernel thread only.
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
  virtual void instruction(const InstructionEvent& /*event*/) {}
  virtual void semaphore(const SemaphoreEvent& /*event*/) {}
  virtual void device_register(const RegisterEvent& /*event*/) {}
};

class ProbeSet {
 public:
  // The sink outlives the set, or its last event.
  void add(ProbeSink& sink, std::initializer_list<ProbeEvent> events) {
    for (const ProbeEvent event : events) {
      listeners_[static_cast<size_t>(event)].push_back(&sink);
      wanted_ |= bit(event);
    }
  }

  bool wants(ProbeEvent event) const { return (wanted_ & bit(event)) != 0; }

  // Tells the event that `make` returns to those who want it; without one, `make` is not called.
  template <class Event, class Make>
  void tell(ProbeEvent kind, void (ProbeSink::*hear)(const Event&), const Make& make) const {
    if (wants(kind)) [[unlikely]] {
      send(kind, hear, make());
    }
  }

 private:
  static constexpr uint32_t bit(ProbeEvent event) {
    return uint32_t{1} << static_cast<uint32_t>(event);
  }
  template <class Event>
  void send(ProbeEvent kind, void (ProbeSink::*hear)(const Event&), const Event& event) const {
    for (ProbeSink* sink : listeners_[static_cast<size_t>(kind)]) {
      (sink->*hear)(event);
    }
  }

  uint32_t wanted_ = 0;
  std::array<std::vector<ProbeSink*>, kProbeEvents> listeners_;
};

}  // namespace tpu::model
