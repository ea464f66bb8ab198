// BoardSnapshot: the board and what the driver knows of it, to a file and back (docs/snapshots.md).
// Guarded by the board lock; nothing is in flight.
#pragma once

#include <memory>
#include <string>

#include "src/boot/booter.hpp"
#include "src/feeds/feeds.hpp"
#include "src/launches/launcher.hpp"
#include "src/lock/board_lock.hpp"
#include "src/operations/board_handles.hpp"
#include "src/operations/send_order.hpp"
#include "src/recovery/recovery.hpp"
#include "src/residency/loader.hpp"
#include "src/snapshots/snapshot_records.hpp"
#include "src/snapshots/snapshot_source.hpp"
#include "src/turn/turn.hpp"
#include "tpu/board.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::driver {

class BoardSnapshot {
 public:
  /// Whose state is in a snapshot, or must be the same.
  struct Parts {
    const spec::BoardParams& params;
    const SimOptions& sim;
    const std::unique_ptr<Transport>& transport;
    const Booter& booter;
    const BoardHandles& handles;
    const SendOrder& order;
    const Feeds& feeds;
    Devices& devices;
    CoreRegisters& registers;
    Operations& operations;
    Launcher& launcher;
    Loader& loader;
    Recovery& recovery;
    Turn& turn;
  };
  explicit BoardSnapshot(const Parts& parts) : parts_(parts) {}

  /// Throws FailedPrecondition for a launch that takes batches, which may not end by itself.
  void check_feeds() const TPU_REQUIRES(board_lock);
  /// Everything that was submitted is over. Throws as Board::save_snapshot() does.
  void save(const std::string& path, const SnapshotItems& items) TPU_REQUIRES(board_lock);

  /// Whether the snapshot is of such a board as this will be; needs no transport. Throws
  /// InvalidArgument.
  void check(SnapshotSource& source) const TPU_REQUIRES(board_lock);
  /// Into a board whose transport has just been made. Throws InvalidArgument.
  void restore(SnapshotSource& source) TPU_REQUIRES(board_lock);
  /// The items of the snapshot that was restored, once.
  SnapshotItems take_items() TPU_REQUIRES(board_lock);

 private:
  void check_idle() const TPU_REQUIRES(board_lock);
  void visit_head(spec::Archive& archive) const TPU_REQUIRES(board_lock);
  void visit_driver(spec::Archive& archive) TPU_REQUIRES(board_lock);
  void visit_all(spec::Archive& archive, SnapshotRecords& records) TPU_REQUIRES(board_lock);
  void restore_records(SnapshotRecords& records) TPU_REQUIRES(board_lock);
  std::shared_ptr<LoadedProgram> restore_program(const ProgramRecord& record,
                                                 const SnapshotRecords& records)
      TPU_REQUIRES(board_lock);

  const Parts parts_;
  SnapshotRecords restored_;  // until they are taken
};

}  // namespace tpu::driver
