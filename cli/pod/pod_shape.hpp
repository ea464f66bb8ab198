// How a pod's processes share the chips of its board, and the variables that say so to each: those
// of a real TPU host, those of JAX, and the board's own.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tpu/spec/board_params.hpp"

namespace tpu::driver {

struct ChipGrid {
  int64_t x = 1;
  int64_t y = 1;

  int64_t size() const { return x * y; }
};

struct PodShape {
  int64_t processes = 1;
  std::optional<ChipGrid> chips;  ///< of a process; nothing: each has a part of a chip
};

/// "2,1" or "2,1,1". Throws UsageError.
ChipGrid chip_grid(const std::string& text);

/// `processes`: 0: as many as there are parts of `chips`. Throws UsageError for numbers that do not
/// divide the board.
PodShape pod_shape(const spec::BoardParams& board, int64_t processes,
                   const std::optional<ChipGrid>& chips);

/// What the processes of a run have in common.
struct PodRun {
  std::string board;   ///< empty: as the environment says
  std::string folder;  ///< in which they meet
  int port = 0;        ///< of JAX's coordinator
};

/// The variables of one process by name; empty values: not to be set.
std::map<std::string, std::string> variables_of(const spec::BoardParams& board,
                                                const PodShape& shape, const PodRun& run,
                                                int64_t process);

}  // namespace tpu::driver
