// How far a process of a pod may simulate, and where all of them stop: what follows from what the
// processes say of themselves. No time and no carrier here.
//
// Processes run in windows, which all of them begin and end at the same cycle. At the end of one
// each has said before which cycle it sends nothing unless something arrives (`silent`), and what
// it has sent is under way. So nothing is sent anywhere before the least of these cycles, and
// nothing arrives before that cycle + the least latency: the next window ends in front of it.
// All processes compute the same window from the same numbers (ADR 113).
//
// All processes end a run in the same cycle, the one in which a pod in one process ends it:
// - at an interrupt of the host, which is on its way for longer than a window reaches (`halt`);
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
  // `lookahead`: least cycles between the cause of anything that leaves a process, and its arrival.
  PodClock(uint32_t rank, uint32_t ranks, uint64_t lookahead);

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

  // Runs are counted from 1; statuses of the one before are forgotten. `now`: the cycle in which
  // all processes begin it.
  void begin(uint64_t run, uint64_t now);
  uint64_t run() const { return run_; }
  // Last cycle of the window. All that arrives in it is there when it begins.
  uint64_t end() const { return end_; }
  // Nothing that a process sends in the window has its cause before this cycle.
  uint64_t silent() const { return end_ + 1 - lookahead_; }
  // False: of a run or of a window that has not begun here; it is to be heard again then. What is
  // left of a run that is over counts no more. Throws PodLost for what cannot be.
  bool hear(uint32_t from, const PodStatus& status);
  // Somebody has asked for an early end.
  bool asked() const;
  // `mine` is what this process says of itself. It has sent the same, unless it runs on and is not
  // at the end of the window. `active`: something is in flight in it, other than messages to
  // others, and it looks again when that ends.
  Step next(const PodStatus& mine, bool active);

 private:
  // One of those that are furthest back in time.
  RankSet slowest(uint64_t now) const;

  const uint32_t rank_;
  const uint64_t lookahead_;
  uint64_t run_ = 0;
  uint64_t end_ = 0;
  std::vector<std::optional<PodStatus>> others_;  // by rank
};

}  // namespace tpu::model
