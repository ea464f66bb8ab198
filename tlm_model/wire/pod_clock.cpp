// Promises, halts, and the cycle in which a run ends.
#include "wire/pod_clock.hpp"

#include <algorithm>

#include "wire/wire.hpp"

namespace tpu::model {
namespace {

bool has(const PodStatus& status, uint64_t flag) { return (status.flags & flag) != 0; }

[[noreturn]] void refuse(uint32_t from, const std::string& why) {
  throw PodLost("rank " + std::to_string(from) + " " + why);
}

}  // namespace

PodClock::PodClock(uint32_t rank, uint32_t ranks) : rank_(rank), others_(ranks) {}

void PodClock::begin(uint64_t run) {
  run_ = run;
  std::ranges::fill(others_, std::nullopt);
}

bool PodClock::hear(uint32_t from, const PodStatus& status) {
  std::optional<PodStatus>& known = others_[from];
  if (status.run > run_) {
    if (status.run > run_ + 1) {
      refuse(from, "is in run " + std::to_string(status.run) + ", this process in run " +
                       std::to_string(run_));
    }
    return false;
  }
  if (status.run < run_) {
    return true;
  }
  if (known && (status.done < known->done || status.promise < known->promise)) {
    refuse(from, "takes back what it has promised at cycle " + std::to_string(known->done));
  }
  known = status;
  return true;
}

std::optional<uint64_t> PodClock::horizon() const {
  uint64_t least = UINT64_MAX;
  for (uint32_t rank = 0; rank < others_.size(); ++rank) {
    if (rank != rank_) {
      if (!others_[rank]) {
        return std::nullopt;
      }
      least = std::min<uint64_t>(least, others_[rank]->promise);
    }
  }
  return least;
}

uint32_t PodClock::slowest() const {
  uint32_t found = rank_;
  for (uint32_t rank = 0; rank < others_.size(); ++rank) {
    if (rank == rank_) {
      continue;
    }
    if (!others_[rank]) {
      return rank;
    }
    if (found == rank_ || others_[rank]->promise < others_[found]->promise) {
      found = rank;
    }
  }
  return found;
}

bool PodClock::asked() const {
  return std::ranges::any_of(others_, [](const std::optional<PodStatus>& other) {
    return other && has(*other, TPU_POD_WIRE_ASKED);
  });
}

PodClock::Step PodClock::next(const PodStatus& mine, bool active) const {
  using What = Step::What;
  const std::optional<uint64_t> arrivals = horizon();
  if (!arrivals) {
    return {.from = rank_bit(slowest())};
  }
  const uint64_t now = mine.done;
  bool together = true;
  bool interrupt = has(mine, TPU_POD_WIRE_STOP);
  bool asked = has(mine, TPU_POD_WIRE_ASKED);
  bool frozen = has(mine, TPU_POD_WIRE_FROZEN);
  bool busy = mine.busy > now;
  uint64_t ahead = now;     // of all
  uint64_t known_busy = 0;  // of the others: first cycle that is not known to be reached
  uint64_t halt = mine.halt;
  for (uint32_t rank = 0; rank < others_.size(); ++rank) {
    if (rank == rank_) {
      continue;
    }
    const PodStatus& other = *others_[rank];
    if (other.until != mine.until) {
      refuse(rank, "runs until cycle " + std::to_string(other.until) + ", this process until " +
                       std::to_string(mine.until));
    }
    together = together && other.done == now;
    interrupt = interrupt || has(other, TPU_POD_WIRE_STOP);
    asked = asked || has(other, TPU_POD_WIRE_ASKED);
    frozen = frozen && has(other, TPU_POD_WIRE_FROZEN);
    busy = busy || other.busy > now;
    ahead = std::max<uint64_t>(ahead, other.done);
    known_busy = std::max<uint64_t>(known_busy, std::max<uint64_t>(other.busy, other.done));
    halt = std::min<uint64_t>(halt, other.halt);
  }
  if (together) {
    Step stop{.what = What::kStop, .to = now, .quiet = !busy, .interrupt = interrupt};
    const bool over = mine.until == kPodQuiet  ? !busy
                      : mine.until == kPodRead ? false
                                               : now >= mine.until;
    if (interrupt || over) {
      return stop;
    }
    if (asked && frozen) {
      stop.early = true;
      return stop;
    }
  }
  if (*arrivals <= now + 1) {
    return {.from = rank_bit(slowest())};
  }
  uint64_t to = std::min({*arrivals - 1, halt, mine.until});
  if (has(mine, TPU_POD_WIRE_FROZEN)) {
    to = frozen ? std::min(to, ahead) : now;
  } else if (mine.until == kPodQuiet && !active) {
    to = std::min(to, std::max<uint64_t>(mine.busy, known_busy));
  }
  if (to > now) {
    return {.what = What::kRun, .to = to};
  }
  return {};
}

}  // namespace tpu::model
