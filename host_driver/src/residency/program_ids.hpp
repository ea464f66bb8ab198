// ProgramIds: which program ids of each core are in use. An id is given back when its program is
// gone: that may be by any thread and under any lock, so that it is queued (leaf lock) until a call
// on the board unloads it. All else is guarded by the board lock.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "file/archive.hpp"
#include "src/lock/board_lock.hpp"
#include "sync/mutex.hpp"
#include "tpu/spec/rings.h"

namespace tpu::driver {

class ProgramIds {
 public:
  struct Retired {
    int device = 0;
    uint16_t id = 0;
    bool sent = false;  ///< the core may know the id
    void visit_state(spec::Archive& archive) { archive(device, id, sent); }
  };

  explicit ProgramIds(size_t devices) : used_(devices) {}

  /// Takes a free id of the core; empty when all are taken.
  std::optional<uint16_t> take(int device) TPU_REQUIRES(board_lock);
  void give_back(int device, uint16_t id) TPU_REQUIRES(board_lock);
  /// Any thread, any lock: its program is gone.
  void retire(const Retired& id) TPU_REQUIRES(board_lock);
  /// The oldest id whose program is gone, once; empty without one.
  std::optional<Retired> next_retired() TPU_REQUIRES(board_lock);

  void visit_used(spec::Archive& archive, size_t device) TPU_REQUIRES(board_lock) {
    archive(used_[device]);
  }
  void visit_retired(spec::Archive& archive) TPU_REQUIRES(board_lock);
  /// After they were loaded: notes that a program of the snapshot has the id. Throws ArchiveError
  /// when it is free, or another one has it.
  void claim(int device, uint16_t id) TPU_REQUIRES(board_lock);
  /// Retires those that are in use and were not claimed.
  void retire_unclaimed() TPU_REQUIRES(board_lock);

 private:
  using Flags = std::array<bool, TPU_MAX_PROGRAMS>;

  std::vector<Flags> used_;
  std::vector<Flags> claimed_;  // while a snapshot is loaded
  base::Mutex mutex_;           // leaf lock
  std::deque<Retired> retired_ TPU_GUARDED_BY(mutex_);
};

}  // namespace tpu::driver
