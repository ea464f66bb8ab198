// The kind of a board's chips, as JAX and XProf name it.
#pragma once

#include <string>

#include "tpu/spec/board_params.hpp"

namespace tpu::spec {

/// "TPU v2" of boards whose name begins with v2, else "TPU v3".
inline std::string chip_kind(const BoardParams& board) {
  return board.board.name.starts_with("v2") ? "TPU v2" : "TPU v3";
}

}  // namespace tpu::spec
