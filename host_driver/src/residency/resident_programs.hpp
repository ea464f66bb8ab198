// ResidentPrograms: the programs that were loaded and are still used, and which of them was used
// longest ago. Guarded by the board lock.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "file/archive.hpp"
#include "src/lock/board_lock.hpp"
#include "src/residency/program.hpp"

namespace tpu::driver {

class ResidentPrograms {
 public:
  void add(const std::shared_ptr<LoadedProgram>& program) TPU_REQUIRES(board_lock);
  /// A load or a launch uses it.
  void use(LoadedProgram& program) TPU_REQUIRES(board_lock) { program.last_use = ++uses_; }
  /// Takes the program that was used longest ago off its cores, of those on `device` that no launch
  /// holds. False: there is none.
  bool evict(int device) TPU_REQUIRES(board_lock);
  /// Those that somebody still holds.
  std::vector<std::shared_ptr<LoadedProgram>> live() const TPU_REQUIRES(board_lock);

  void visit_state(spec::Archive& archive) { archive(uses_); }

 private:
  std::vector<std::weak_ptr<LoadedProgram>> programs_;
  uint64_t uses_ = 0;  // loads and launches
};

}  // namespace tpu::driver
