// LoadedProgram: an executable on its cores: image, constants and scratch in HBM, program ids.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exe/executable.hpp"
#include "src/operation.hpp"
#include "tpu/executable.hpp"

namespace tpu::driver {

struct LoadedProgram {
  ~LoadedProgram();

  /// What one core holds.
  struct Part {
    int device = 0;
    uint16_t id = 0;
    bool has_id = false;                                           ///< given back by retire()
    bool sent = false;                                             ///< the core may know the id
    std::shared_ptr<bool> loaded = std::make_shared<bool>(false);  ///< its LOAD has been OK
    std::shared_ptr<Allocation> code;
    std::vector<std::shared_ptr<Allocation>> slots;  ///< constants and scratch by slot, else null
  };

  std::weak_ptr<BoardImpl> board;
  exe::ExecutableT exe;  ///< without the constants' data once they are on the board
  std::vector<ParameterInfo> arguments;
  std::vector<ParameterInfo> results;
  std::vector<OwnedRuns> argument_owned, result_owned;  ///< null: every core holds all of it
  std::vector<Part> parts;
};

/// The program behind a handle.
struct ExecutableState {
  std::shared_ptr<BoardImpl> board;
  std::shared_ptr<LoadedProgram> program;
};

}  // namespace tpu::driver
