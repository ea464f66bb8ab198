// StepFeedState: the queues behind a StepFeed. A step's batch waits on the host until its turn;
// then its copies go to the rings, and with them those of the results of the same step, so that no
// command waits for one that comes behind it. A few steps are on the rings at a time: two batches
// lie on the board, and the next ones start as soon as a step has ended.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/lock/board_lock.hpp"
#include "src/memory/box.hpp"
#include "src/memory/host_arena.hpp"
#include "src/operations/operation.hpp"
#include "src/residency/program.hpp"
#include "src/turn/deadline.hpp"
#include "tpu/step_feed.hpp"

namespace tpu::driver {

/// An argument or result that is fed: two places in the memory of each core, used in turn.
struct FeedSlot {
  size_t index = 0;  ///< argument or result
  uint32_t slot = 0;
  uint64_t stride = 0;                              ///< bytes from one place to the other
  std::vector<std::shared_ptr<Allocation>> memory;  ///< by partition
  std::vector<Box> boxes;                           ///< as above
  /// By partition: the first one with its box. Results are read from these alone.
  std::vector<size_t> first_with_box;

  bool read_from(size_t p) const { return first_with_box[p] == p; }
};

/// Guarded by the board lock, all but `ended`.
struct StepFeedState {
  /// By infeed slot and partition.
  using Batch = std::vector<std::vector<std::shared_ptr<StagingRange>>>;
  struct Step {
    Batch batch;                           ///< until the step cannot have to be sent again
    std::shared_ptr<EventState> uploaded;  ///< null: no infeed
    std::shared_ptr<EventState> done;      ///< null: no outfeed
    std::shared_ptr<Operation> up, down;   ///< on the rings; null: none, or over
    std::vector<HostArray> results;
    bool taken = false;
  };

  std::shared_ptr<const ProgramInfo> info;
  std::weak_ptr<Operation> launch;
  std::string what;                   ///< of the launch
  std::shared_ptr<EventState> event;  ///< as above
  /// By partition: CommandRing::resets() when the launch was sent; the core counts what it owes
  /// since.
  std::vector<uint32_t> resets;
  uint32_t steps = 1;
  std::vector<FeedSlot> infeed, outfeed;

  /// Flags of the LAUNCH command of core `p`.
  uint16_t launch_flags(size_t p) const;
  /// Whether result `r` is fed to the host.
  bool gives(size_t r) const {
    return std::any_of(outfeed.begin(), outfeed.end(),
                       [&](const FeedSlot& slot) { return slot.index == r; });
  }
  /// The place of an argument or result on core `p`; null: none that is fed there.
  const FeedSlot* fed_slot(uint32_t slot, size_t p) const;

  std::map<uint32_t, Step> at
      TPU_GUARDED_BY(board_lock);  ///< steps that somebody asked for or that are on the rings
  uint32_t given TPU_GUARDED_BY(board_lock) = 0;    ///< batches
  uint32_t sent TPU_GUARDED_BY(board_lock) = 0;     ///< steps whose copies are on the rings or over
  uint32_t settled TPU_GUARDED_BY(board_lock) = 0;  ///< steps whose copies are over
  std::atomic<bool> ended{false};                   ///< no more batches come; set by any thread
  bool over TPU_GUARDED_BY(board_lock) = false;     ///< the launch is; `error`: why it failed
  ErrorPtr error;
  Deadline dry_at;  ///< while it waits for a batch: how long it may
};

/// Of a COPY of a step: whether more of the same batch or results follow on its core.
void set_feed_more(Command& command, bool more);
/// A copy of a step that is sent when its core has forgotten how many results it owes: its launch
/// has run.
void stop_counting(Command& command);

}  // namespace tpu::driver
