// Wakes the control harts of a board, each at its cycle. Harts of a gang go through a launch side
// by side: those that wake at one cycle share an entry of SystemC's time queue, and a process that
// has no stack of its own to change to.
#pragma once

#include <cstdint>
#include <systemc>
#include <vector>

namespace tpu::model {

class HartClock : public sc_core::sc_module {
 public:
  SC_HAS_PROCESS(HartClock);

  class Sleeper {
   public:
    virtual ~Sleeper() = default;
    // At its cycle, in the clock's process: nothing may wait in here.
    virtual void wake() = 0;
  };

  explicit HartClock(sc_core::sc_module_name name);

  // Once at a cycle behind the present one. Those of one cycle wake in the order of their numbers.
  void wake_at(uint64_t cycle, uint32_t number, Sleeper& sleeper);

 private:
  struct Entry {
    uint64_t at;
    uint32_t number;
    Sleeper* sleeper;
    bool operator<(const Entry& other) const {  // std::push_heap keeps the largest in front
      return at != other.at ? at > other.at : number > other.number;
    }
  };

  void tick_method();
  void send();

  std::vector<Entry> entries_;  // a heap
  uint64_t sent_for_ = UINT64_MAX;
  sc_core::sc_event tick_event_{"tick_event"};
};

}  // namespace tpu::model
