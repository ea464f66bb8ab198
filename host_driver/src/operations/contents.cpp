// Stretches of an array whose parts several cores own.
#include "src/operations/contents.hpp"

#include <algorithm>

namespace tpu::driver {

std::vector<Contents::Stretch> Contents::within(uint64_t first, uint64_t end) const {
  if (owned == nullptr) {
    return {{parts[0], first, end}};
  }
  std::vector<Stretch> stretches;
  uint64_t at = 0;
  for (const OwnedRun& run : *owned) {
    const uint64_t run_end = at + run.elements * element_bytes;
    if (at < end && run_end > first) {
      stretches.push_back({parts.at(run.owner), std::max(at, first), std::min(run_end, end)});
    }
    at = run_end;
  }
  return stretches;
}

}  // namespace tpu::driver
