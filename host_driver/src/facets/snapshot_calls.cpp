// A launch that takes batches is refused before anything is waited for: it may not end by itself.
#include "src/facets/snapshot_calls.hpp"

namespace tpu::driver {

void SnapshotCalls::save(const std::string& path, const SnapshotItems& items) {
  const Door::Entry entry(door_);
  health_.check_usable();
  snapshot_.check_feeds();
  settle_();
  snapshot_.save(path, items);
}

SnapshotItems SnapshotCalls::take_items() {
  const Door::Entry entry(door_);
  health_.check_usable();
  return snapshot_.take_items();
}

}  // namespace tpu::driver
