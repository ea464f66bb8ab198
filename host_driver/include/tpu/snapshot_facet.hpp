// Snapshots: a whole board in a file.
#pragma once

#include <map>
#include <string>

#include "tpu/board_facet.hpp"
#include "tpu/buffer.hpp"
#include "tpu/executable.hpp"

namespace tpu::driver {

/// What a snapshot keeps for its user: handles and texts by name.
struct SnapshotItems {
  std::map<std::string, Array> arrays;         ///< live; their contents are the board's
  std::map<std::string, Executable> programs;  ///< as they are loaded
  std::map<std::string, std::string> notes;    ///< anything of the caller's own
};

/// Saves a board, and returns what was saved with it.
class SnapshotFacet : public virtual BoardFacet {
 public:
  /// Saves the whole board, once everything that was submitted is over; no time passes beside that.
  /// The file is replaced in one step. A board that is opened from it has the same bits and cycles,
  /// in any process and on any host; buffers and programs that are not in `items` are gone there.
  /// Throws InvalidArgument (`items` of another board or not live), FailedPrecondition (a launch
  /// waits for an event, a batch or the host; the file cannot be written), ResourceExhausted (the
  /// disk is full), Unimplemented (the transport); the board continues and the old file stays then.
  void save_snapshot(const std::string& path, const SnapshotItems& items = {}) const;
  /// Of a board that was opened from a snapshot: its items, once. Empty otherwise.
  SnapshotItems take_snapshot_items() const;
};

}  // namespace tpu::driver
