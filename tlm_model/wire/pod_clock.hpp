// How far a process of a pod may simulate, and where all of them stop: what follows from what the
// processes say of themselves. No time and no carrier here.
//
// A process runs a cycle when nothing can arrive in it any more: the promises of all others are
// beyond it (strictly: a promise is the first cycle in which something may arrive). All processes
// end a run in the same cycle, the one in which a pod in one process ends it:
// - at an interrupt of the host, which is on its way for longer than a promise reaches (`halt`);
// - when nothing is in flight anywhere: a process that has nothing in flight runs no cycle of which
//   it does not know that something was in flight at the end of the one before (`busy`);
// - at a given cycle;
// - when a process is to end early: all go as far as the one that is ahead.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tpu/spec/pod_wire.h"
#include "wire/wire.hpp"

namespace tpu::model {

using PodStatus = tpu_pod_wire_status_t;

// `until` of a status.
inline constexpr uint64_t kPodQuiet = UINT64_MAX;     // ends when nothing is in flight
inline constexpr uint64_t kPodRead = UINT64_MAX - 1;  // ends when a process says so

class PodClock {
 public:
  PodClock(uint32_t rank, uint32_t ranks);

  struct Step {
    enum class What { kWait, kRun, kStop };
    What what = What::kWait;
    uint64_t to = 0;         // kRun: last cycle
    bool quiet = false;      // kStop: nothing is in flight
    bool interrupt = false;  // kStop: of a process
    bool early = false;      // kStop: asked for
    // kWait: before one of these says more, nothing changes.
    RankSet from = kAllRanks;
  };

  // Runs are counted from 1; statuses of the one before are forgotten.
  void begin(uint64_t run);
  uint64_t run() const { return run_; }
  // False: of a run that has not begun here; it is to be heard again then. What is left of a run
  // that is over counts no more. Throws PodLost for what cannot be.
  bool hear(uint32_t from, const PodStatus& status);
  // The least promise of the others; nothing when one has not said anything in this run.
  std::optional<uint64_t> horizon() const;
  // Who says the least: one of those that have not said anything, or has the least promise.
  uint32_t slowest() const;
  // Somebody has asked for an early end.
  bool asked() const;
  // `mine` is what this process says of itself, the same that it has sent; `active`: something is
  // in flight in it, other than messages to others, and it looks again when that ends.
  Step next(const PodStatus& mine, bool active) const;

 private:
  const uint32_t rank_;
  uint64_t run_ = 0;
  std::vector<std::optional<PodStatus>> others_;  // by rank
};

}  // namespace tpu::model
