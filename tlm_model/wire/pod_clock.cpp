// Windows, halts, and the cycle in which a run ends.
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

PodClock::PodClock(uint32_t rank, uint32_t ranks, uint64_t lookahead)
    : rank_(rank), lookahead_(lookahead), others_(ranks) {}

void PodClock::begin(uint64_t run, uint64_t now) {
  run_ = run;
  end_ = now;
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
  if (status.silent <= status.done) {
    refuse(from, "says at cycle " + std::to_string(status.done) +
                     " that it is silent before cycle " + std::to_string(status.silent));
  }
  if (known && (status.done < known->done ||
                (status.done == known->done && status.silent != known->silent))) {
    refuse(from, "takes back what it has said at cycle " + std::to_string(known->done));
  }
  // What it has said at the end of this window is needed until all have said that.
  if (status.done > end_) {
    return false;
  }
  known = status;
  return true;
}

RankSet PodClock::slowest(uint64_t now) const {
  uint32_t found = rank_;
  for (uint32_t rank = 0; rank < others_.size(); ++rank) {
    if (rank == rank_) {
      continue;
    }
    if (!others_[rank]) {
      return rank_bit(rank);
    }
    const bool behind = others_[rank]->done < now;
    if (behind && (found == rank_ || others_[rank]->done < others_[found]->done)) {
      found = rank;
    }
  }
  return found == rank_ ? kAllRanks : rank_bit(found);
}

bool PodClock::asked() const {
  return std::ranges::any_of(others_, [](const std::optional<PodStatus>& other) {
    return other && has(*other, TPU_POD_WIRE_ASKED);
  });
}

PodClock::Step PodClock::next(const PodStatus& mine, bool active) {
  using What = Step::What;
  const uint64_t now = mine.done;
  bool together = true;
  bool interrupt = has(mine, TPU_POD_WIRE_STOP);
  bool asked = has(mine, TPU_POD_WIRE_ASKED);
  bool frozen = has(mine, TPU_POD_WIRE_FROZEN);
  bool busy = mine.busy > now;
  uint64_t ahead = now;     // of all
  uint64_t known_busy = 0;  // of the others: first cycle that is not known to be reached
  uint64_t halt = mine.halt;
  uint64_t silent = mine.silent;
  for (uint32_t rank = 0; rank < others_.size(); ++rank) {
    if (rank == rank_) {
      continue;
    }
    if (!others_[rank]) {
      return {.from = slowest(now)};
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
    silent = std::min<uint64_t>(silent, other.silent);
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
    // In no other cycle: all processes come through this one, and none goes on before all have said
    // that they are here.
    if (now == end_) {
      end_ = std::min(silent, UINT64_MAX - lookahead_) + lookahead_ - 1;
    }
  }
  uint64_t to = std::min({end_, halt, mine.until});
  if (has(mine, TPU_POD_WIRE_FROZEN)) {
    to = frozen ? std::min(to, ahead) : now;
  } else if (mine.until == kPodQuiet && !active) {
    to = std::min(to, std::max<uint64_t>(mine.busy, known_busy));
  }
  if (to > now) {
    return {.what = What::kRun, .to = to};
  }
  return {.from = has(mine, TPU_POD_WIRE_FROZEN) ? kAllRanks : slowest(now)};
}

}  // namespace tpu::model
