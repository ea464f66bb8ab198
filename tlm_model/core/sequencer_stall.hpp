// Why a sequencer is stalled, and since when.
#pragma once

#include <cstdint>

#include "probe/events.hpp"

namespace tpu::model {

class SequencerStall {
 public:
  enum class Why : uint8_t { kNone, kQueueFull, kSemaphore, kHalt, kHost };

  // `index`: of the queue, the semaphore or the host call; `wanted`: value of the semaphore.
  void begin(Why why, uint64_t now, uint32_t index = 0, uint32_t wanted = 0) {
    why_ = why;
    since_ = now;
    index_ = index;
    wanted_ = wanted;
  }
  void end() { why_ = Why::kNone; }

  Why why() const { return why_; }
  uint32_t index() const { return index_; }
  uint64_t since() const { return since_; }
  // Of a stall that begins or ends at `cycle`; `value`: of the semaphore that it waits for.
  WaitEvent event(uint64_t cycle, const ProbeSource& source, uint32_t value, bool begin) const {
    WaitEvent event{.cycle = cycle,
                    .source = source,
                    .what = WaitEvent::For::kEngines,
                    .since = since_,
                    .begin = begin};
    switch (why_) {
      case Why::kQueueFull:
        event.what = WaitEvent::For::kQueue;
        event.index = index_;
        break;
      case Why::kSemaphore:
        event.what = WaitEvent::For::kSemaphore;
        event.index = index_;
        event.wanted = wanted_;
        event.value = value;
        break;
      case Why::kHost:
        event.what = WaitEvent::For::kHost;
        event.index = index_;
        break;
      default:
        break;
    }
    return event;
  }

 private:
  Why why_ = Why::kNone;
  uint64_t since_ = 0;
  uint32_t index_ = 0;
  uint32_t wanted_ = 0;
};

}  // namespace tpu::model
