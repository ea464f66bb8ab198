// LoadedProgram: an executable on its cores: image, constants and scratch in HBM, program ids.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "exe/executable.hpp"
#include "src/board/operation.hpp"
#include "tpu/executable.hpp"

namespace tpu::driver {

/// What stays readable when the program is gone.
struct ProgramInfo {
  std::string name;
  uint32_t partitions = 1;
  std::vector<ParameterInfo> arguments;
  std::vector<ParameterInfo> results;
  ProgramCost cost;
};

/// From the tables of the executable.
ProgramCost program_cost(const exe::ExecutableT& exe);

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
  std::shared_ptr<const ProgramInfo> info;
  std::vector<OwnedRuns> argument_owned, result_owned;  ///< null: every core holds all of it
  std::vector<Part> parts;
};

/// The program behind a handle.
struct ExecutableState {
  ExecutableState(std::shared_ptr<BoardImpl> on, std::shared_ptr<LoadedProgram> loaded)
      : board(std::move(on)), info(loaded->info), program_(std::move(loaded)) {}

  const std::shared_ptr<BoardImpl> board;
  const std::shared_ptr<const ProgramInfo> info;

  /// Throws FailedPrecondition after unload().
  std::shared_ptr<LoadedProgram> program() const;
  void unload();

 private:
  mutable std::mutex mutex_;  // leaf lock
  std::shared_ptr<LoadedProgram> program_;
};

}  // namespace tpu::driver
