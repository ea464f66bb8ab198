// Programs by their last use.
#include "src/residency/resident_programs.hpp"

#include <algorithm>

namespace tpu::driver {

void ResidentPrograms::add(const std::shared_ptr<LoadedProgram>& program) {
  std::erase_if(programs_, [](const auto& weak) { return weak.expired(); });
  programs_.push_back(program);
}

bool ResidentPrograms::evict(int device) {
  std::shared_ptr<LoadedProgram> oldest;
  for (const auto& weak : programs_) {
    const auto program = weak.lock();
    if (!program || program->residence.use_count() != 1) {
      continue;
    }
    const auto& on = program->info->devices;
    if (std::find(on.begin(), on.end(), device) != on.end() &&
        (!oldest || program->last_use < oldest->last_use)) {
      oldest = program;
    }
  }
  if (!oldest) {
    return false;
  }
  oldest->residence.reset();
  return true;
}

std::vector<std::shared_ptr<LoadedProgram>> ResidentPrograms::live() const {
  std::vector<std::shared_ptr<LoadedProgram>> held;
  for (const auto& weak : programs_) {
    if (auto program = weak.lock()) {
      held.push_back(std::move(program));
    }
  }
  return held;
}

}  // namespace tpu::driver
