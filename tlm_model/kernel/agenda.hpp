// Processes that take turns by the million: engines, sequencers, semaphores,
// flows. To SystemC they are one method, so that a turn costs neither an event
// of its own nor its place in SystemC's time queue. A task behaves as an
// SC_METHOD that calls next_trigger() in each turn: it waits for a cycle, for
// notifications, or for what comes first. Turns are in the delta cycles in
// which a method would have had them, except that delta cycles in which nothing
// but tasks runs are not delta cycles of SystemC.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <systemc>
#include <vector>

#include "kernel/cycles.hpp"

namespace tpu::model {

class Task;

class Agenda : public sc_core::sc_module {
 public:
  SC_HAS_PROCESS(Agenda);
  explicit Agenda(sc_core::sc_module_name name);

 private:
  friend class Task;
  // Cycles within the next kNear are places of a ring, later ones lie in a heap
  // until they are due: what is due in a cycle was put into the heap before it
  // was put into the ring.
  static constexpr size_t kNear = 2048;
  static constexpr size_t kWord = 64;
  struct Later {
    uint64_t at;
    uint64_t order;  // of equal cycles: in which they were set
    Task* task;
    bool before(const Later& other) const {
      return at != other.at ? at < other.at : order < other.order;
    }
  };

  void run_method();
  void take_notified(size_t count);
  void take_due(uint64_t now);
  void notify(Task& task);
  void set(Task& task, uint64_t now, uint64_t cycles);
  void remove(Task& task);
  void remove_later(Task& task);
  void leave(size_t slot);
  void put(const Later& later, size_t place);
  bool rises(const Later& later, size_t place);
  void sinks(const Later& later, size_t place);
  uint64_t next_near(uint64_t now) const;
  void wake_in_time(uint64_t now);

  std::vector<Task*> notified_;      // since the turns of this delta cycle were chosen
  uint64_t notified_in_ = 0;         // delta cycle of SystemC in which the last of them were,
  size_t earlier_ = 0;               // and how many were before it
  std::vector<Task*> turns_;         // of this delta cycle
  std::array<Task*, kNear> near_{};  // by cycle: the first of a closed list, in the order of set()
  std::array<uint64_t, kNear / kWord> used_{};  // places of near_
  uint32_t used_words_ = 0;                     // of used_
  std::vector<Later> later_;  // a heap with four children a node, the earliest first
  uint64_t order_ = 0;
  uint64_t wakes_at_ = kNever;  // what time_event_ is notified for
  bool running_ = false;
  sc_core::sc_event time_event_{"time_event"};
  sc_core::sc_event delta_event_{"delta_event"};
};

class Task {
 public:
  // Why a task has its turn: one bit each, the owner's choice. Every task waits
  // for kWake.
  static constexpr uint32_t kWake = 1;

  // Calls `Method` of the owner in each turn. Both outlive the task.
  template <auto Method, class Owner>
  static Task of(Agenda& agenda, Owner& owner) {
    return Task(agenda, &owner, [](void* self) { (static_cast<Owner*>(self)->*Method)(); });
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // The task has a turn in the next delta cycle if it waits for this reason
  // then.
  void notify(uint32_t reason = kWake) {
    if (reasons_ == 0) {
      agenda_.notify(*this);
    }
    reasons_ |= reason;
  }
  // What the next turn is for, instead of what was set before: these reasons,
  void wait(uint32_t reasons = kWake) {
    forget_time();
    waits_ = reasons | kWake;
  }
  // or after some cycles, whichever is first.
  void wait_cycles(uint64_t cycles, uint32_t reasons = kWake) {
    wait(reasons);
    if (cycles == 0) {
      waits_ |= kNow;
      return notify(kNow);
    }
    agenda_.set(*this, now_cycles(), cycles);
  }

 private:
  friend class Agenda;
  using Run = void (*)(void* owner);
  static constexpr uint32_t kNow = uint32_t{1} << 31;
  static constexpr size_t kNowhere = SIZE_MAX;   // of place_: it waits for no cycle,
  static constexpr size_t kNear = SIZE_MAX - 1;  // or for one of the ring

  Task(Agenda& agenda, void* owner, Run run) : agenda_(agenda), owner_(owner), run_(run) {}
  void forget_time() {
    if (place_ != kNowhere) {
      agenda_.remove(*this);
    }
  }

  Agenda& agenda_;
  void* const owner_;
  const Run run_;
  uint32_t waits_ = kWake;
  uint32_t reasons_ = 0;     // that it was notified for
  size_t place_ = kNowhere;  // in the heap
  size_t slot_ = 0;          // in the ring, and its neighbours there
  Task* next_ = nullptr;
  Task* previous_ = nullptr;
};

}  // namespace tpu::model
