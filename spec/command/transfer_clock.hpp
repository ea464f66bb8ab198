// When transfers that share bandwidth end, for models that go from event to event: they start what
// begins in a cycle, then step the clock until nothing happens in it, then go on to next_end() or
// to an event of their own before it.
#pragma once

#include <cstdint>
#include <vector>

#include "command/bandwidth_share.hpp"

namespace tpu::spec {

class TransferClock {
 public:
  /// To add resources to.
  BandwidthShare& share() { return share_; }

  /// Starts the transfer at cycle `now`; step() must follow in this cycle.
  void start(Transfer& transfer, uint64_t now) { changed_ |= !share_.start(transfer, now); }

  /// Forgets what is under way; resume() takes it in again, step() must follow in this cycle.
  void forget() {
    share_.forget();
    changed_ = true;
  }
  void resume(Transfer& transfer) { share_.resume(transfer); }

  /// Whether step() has something to do.
  bool due(uint64_t now) const { return changed_ || next_end_ <= now; }

  /// Calls `ended` with each transfer that is over at cycle `now`; it may start others. False if
  /// there is none.
  template <typename Ended>
  bool step(uint64_t now, const Ended& ended) {
    if (!due(now)) {
      return false;
    }
    changed_ = false;
    ended_.clear();
    next_end_ = share_.update(now, ended_);
    for (Transfer* transfer : ended_) {
      ended(*transfer);
    }
    return !ended_.empty();
  }

  /// Cycle of the next end, BandwidthShare::kNever if nothing is under way; right once step() has
  /// returned false.
  uint64_t next_end() const { return next_end_; }

 private:
  BandwidthShare share_;
  bool changed_ = false;  // since the last update
  uint64_t next_end_ = BandwidthShare::kNever;
  std::vector<Transfer*> ended_;
};

}  // namespace tpu::spec
