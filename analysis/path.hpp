// Walks back through a re-timed step, from a moment to what it waited for.
#pragma once

#include <functional>
#include <vector>

#include "analysis/accounts.hpp"

namespace tpu::driver {

/// While a command is under way: what it does then.
TimeKind kind_of(const spec::RecordedCommand& command, bool latency);

class PathWalk {
 public:
  PathWalk(const spec::StepRecord& record, const StepTiming& timing);

  /// The pieces in front of a moment, the last first, until one begins at `not_before` or earlier
  /// (it is cut there) or the step of a core begins. Walking on ends where `take` says false.
  void back(const Cause& from, uint64_t time, uint64_t not_before,
            const std::function<void(const PathPiece&)>& take) const;
  static Cause start_of(uint32_t core, uint32_t command) {
    return {Cause::Kind::kStart, core, command};
  }
  Cause end_of(uint32_t core) const;

 private:
  struct Step {
    PathPiece piece;  // may be empty
    Cause next;
    uint64_t time;  // of `next`
    bool ended = false;
  };
  uint64_t time_of(const Cause& at) const;
  Step step(const Cause& at, uint64_t time) const;
  Step done_step(const Cause& at) const;
  Step item_step(const Cause& at) const;

  const spec::StepRecord& record_;
  const StepTiming& timing_;
  std::vector<std::vector<uint32_t>> item_of_;   // by core, command: that issued it
  std::vector<std::vector<uint32_t>> front_of_;  // by core, command: in front of it in its queue
};

}  // namespace tpu::driver
