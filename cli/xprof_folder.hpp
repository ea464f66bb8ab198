// Where --xprof puts a profile, as TensorBoard and `xprof --logdir` look for it:
// DIR/plugins/profile/<date and time>/tpuboard.xplane.pb.
#pragma once

#include <filesystem>
#include <string>

#include "tpu/board.hpp"

namespace tpu::driver {

class XprofFolder {
 public:
  /// A folder of its own below `folder`, so that what viewers keep beside other profiles never
  /// hides this one; none where `options.sim.xprof` is off. Throws FailedPrecondition when it
  /// cannot be made.
  XprofFolder(const std::string& folder, const OpenOptions& options);

  /// Writes what the board has recorded. Throws as write_file(), and FailedPrecondition when no
  /// step ran that was to be recorded.
  void write(const Board& board) const;

 private:
  std::filesystem::path run_;  // empty: no profile is wanted
};

}  // namespace tpu::driver
