// Where the time of a core goes: each cycle belongs to one of a few kinds, so that they sum to the
// cycles since reset. While a program runs: to the foremost engines that are busy. While none does:
// to what the core waits for. Definitions: docs/timing_model.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "file/archive.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::model {

enum class CoreTime : uint8_t {
  kCompute,  // a matrix unit, the vector unit or the XLU is busy
  kLinks,    // else: a transfer to another core
  kHbm,      // else: a DMA queue in or out
  kStalled,  // else: the program waits, for other cores too
  kInput,    // no program runs: the host makes input ready, or sends it to this core's HBM
  kHost,     // no program runs, and nothing comes: dispatch, or nothing to do
};
inline constexpr size_t kCoreTimes = static_cast<size_t>(CoreTime::kHost) + 1;

constexpr CoreTime time_of_queue(uint32_t queue) {
  switch (static_cast<spec::Queue>(queue)) {
    case spec::Queue::kDmaRemote:
      return CoreTime::kLinks;
    case spec::Queue::kDmaIn:
    case spec::Queue::kDmaOut:
      return CoreTime::kHbm;
    default:
      return CoreTime::kCompute;
  }
}

class CoreTimes {
 public:
  using Values = std::array<uint64_t, kCoreTimes>;

  void program(uint64_t now, bool runs) {
    settle(now);
    runs_ = runs;
  }
  // A queue becomes busy (1) or idle (-1).
  void queue(uint64_t now, uint32_t queue, int change) {
    settle(now);
    busy_[static_cast<size_t>(time_of_queue(queue))] += change;
  }
  // Work of the host on input, as a transfer to this core's HBM, begins (1) or ends (-1).
  void upload(uint64_t now, int change) {
    settle(now);
    uploads_ += change;
  }

  // Of a core that runs nothing.
  void visit_state(spec::Archive& archive) { archive(values_, since_, runs_, uploads_, busy_); }

  Values at(uint64_t now) const {
    Values values = values_;
    values[static_cast<size_t>(present())] += now - since_;
    return values;
  }

 private:
  CoreTime present() const {
    if (!runs_) {
      return uploads_ > 0 ? CoreTime::kInput : CoreTime::kHost;
    }
    for (const CoreTime kind : {CoreTime::kCompute, CoreTime::kLinks, CoreTime::kHbm}) {
      if (busy_[static_cast<size_t>(kind)] > 0) {
        return kind;
      }
    }
    return CoreTime::kStalled;
  }
  void settle(uint64_t now) {
    values_[static_cast<size_t>(present())] += now - since_;
    since_ = now;
  }

  Values values_{};
  uint64_t since_ = 0;
  bool runs_ = false;
  int uploads_ = 0;
  std::array<int, kCoreTimes> busy_{};  // queues
};

}  // namespace tpu::model
