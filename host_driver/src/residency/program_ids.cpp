// Ids of programs, from their cores and back.
#include "src/residency/program_ids.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace tpu::driver {

std::optional<uint16_t> ProgramIds::take(int device) {
  Flags& used = used_[static_cast<size_t>(device)];
  const auto free = std::find(used.begin(), used.end(), false);
  if (free == used.end()) {
    return std::nullopt;
  }
  *free = true;
  return static_cast<uint16_t>(free - used.begin());
}

void ProgramIds::give_back(int device, uint16_t id) {
  used_[static_cast<size_t>(device)][id] = false;
}

void ProgramIds::retire(const Retired& id) {
  const base::MutexLock guard(mutex_);
  retired_.push_back(id);
}

std::optional<ProgramIds::Retired> ProgramIds::next_retired() {
  const base::MutexLock guard(mutex_);
  if (retired_.empty()) {
    return std::nullopt;
  }
  const Retired next = retired_.front();
  retired_.pop_front();
  return next;
}

void ProgramIds::visit_retired(spec::Archive& archive) {
  const base::MutexLock guard(mutex_);
  archive(retired_);
  claimed_.assign(used_.size(), {});
  for (const Retired& id : retired_) {
    archive.need(
        id.device >= 0 && std::cmp_less(id.device, used_.size()) && id.id < TPU_MAX_PROGRAMS,
        "a program that is gone was on a core that is not there");
    claimed_[static_cast<size_t>(id.device)][id.id] = true;
  }
}

void ProgramIds::claim(int device, uint16_t id) {
  const auto core = static_cast<size_t>(device);
  if (!used_[core][id] || std::exchange(claimed_[core][id], true)) {
    throw spec::ArchiveError("the program id " + std::to_string(id) + " of TPU:" +
                             std::to_string(device) + " is used twice or is not allocated");
  }
}

void ProgramIds::retire_unclaimed() {
  for (size_t core = 0; core < used_.size(); ++core) {
    for (size_t id = 0; id < TPU_MAX_PROGRAMS; ++id) {
      if (used_[core][id] && !claimed_[core][id]) {
        retire({static_cast<int>(core), static_cast<uint16_t>(id), true});
      }
    }
  }
}

}  // namespace tpu::driver
