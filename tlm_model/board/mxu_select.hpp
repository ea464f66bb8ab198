// Which engine computes which matrix unit: the patterns of a command line
// ("board.chip0.*=lockstep:1/100") against instance paths. Owns what lockstep engines report.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "board/board_host.hpp"
#include "core/engines/mxu.hpp"
#include "mxu/mxu_lockstep.hpp"

namespace tpu::model {

class MxuSelect {
 public:
  // Throws std::runtime_error for a pattern that matches no matrix unit of the board or a mode that
  // does not exist.
  explicit MxuSelect(const BoardOptions& options);

  // Engines of the matrix unit with this path. Throws std::runtime_error when this host or shape
  // cannot run it.
  MxuUnit make(const std::string& path);

  // Sum over all lockstep engines, and the text of their mismatches.
  MxuLockstepCounts counts() const;
  std::string mismatch_text() const;
  std::string wave_error() const;

 private:
  struct Mode {
    std::string kind = "fast";
    uint32_t first_step = 0;
    uint32_t last_step = UINT32_MAX;
  };

  static Mode parse(const std::string& pattern, const std::string& text);
  std::unique_ptr<MxuEngine> engine(const std::string& path, const std::string& kind);
  void set_waves(MxuEngine& engine);

  const BoardOptions options_;
  std::vector<std::pair<std::string, Mode>> modes_;
  std::vector<const MxuLockstepEngine*> lockstep_;  // owned by the matrix units
  std::function<std::string()> wave_error_;
  mutable std::mutex mutex_;
  std::string text_;
};

}  // namespace tpu::model
