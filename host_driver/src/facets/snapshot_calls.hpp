// SnapshotCalls: the calls of Board that save a snapshot and take its items. They take the board
// lock themselves.
#pragma once

#include <functional>
#include <string>

#include "src/door/door.hpp"
#include "src/health/health.hpp"
#include "src/snapshots/board_snapshot.hpp"

namespace tpu::driver {

class SnapshotCalls {
 public:
  /// `settle`: under the board lock; waits until everything that was submitted is over.
  SnapshotCalls(Door& door, Health& health, BoardSnapshot& snapshot, std::function<void()> settle)
      : door_(door), health_(health), snapshot_(snapshot), settle_(std::move(settle)) {}

  void save(const std::string& path, const SnapshotItems& items);
  SnapshotItems take_items();

 private:
  Door& door_;
  Health& health_;
  BoardSnapshot& snapshot_;
  const std::function<void()> settle_;
};

}  // namespace tpu::driver
