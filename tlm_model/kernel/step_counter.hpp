// Numbers the steps of a board from 0, in the order in which they begin: those of all launches
// together, training and evaluation alike. The cores of a gang share a number. What names steps to
// people counts them so: windows of waves and of lockstep, traces. Of a pod, each board counts the
// steps that begin on it, which do not depend on which other boards its process has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "file/archive.hpp"
#include "gang/core_set.hpp"

namespace tpu::model {

class StepCounter {
 public:
  StepCounter() = default;  // all cores of gangs are of the board
  explicit StepCounter(spec::CoreSet board) : board_(std::move(board)) {}  // its cores

  // Core `core` of the gang begins step `step` of launch `launch`; its number.
  uint64_t begin(uint32_t core, const spec::CoreSet& gang, uint32_t launch, uint32_t step) {
    for (size_t i = 0; i < open_.size(); ++i) {
      Open& open = open_[i];
      if (open.launch == launch && open.step == step && open.missing.has(core)) {
        const uint64_t number = open.number;
        open.missing.erase(core);
        if (open.missing.empty()) {
          open_.erase(open_.begin() + static_cast<ptrdiff_t>(i));
        }
        return number;
      }
    }
    spec::CoreSet missing = here(gang);
    missing.erase(core);
    if (!missing.empty()) {
      if (open_.size() == kMostOpen) {  // gangs that a fault ended before all cores had begun
        open_.erase(open_.begin());
      }
      open_.push_back({launch, step, std::move(missing), begun_});
    }
    return begun_++;
  }

  uint64_t begun() const { return begun_; }
  void visit_state(spec::Archive& archive) {
    archive(open_, begun_);
    archive.need(open_.size() <= kMostOpen, "more steps are open than a board keeps");
  }

 private:
  static constexpr size_t kMostOpen = 64;
  spec::CoreSet here(const spec::CoreSet& gang) const {
    if (board_.empty()) {
      return gang;
    }
    spec::CoreSet cores;
    board_.for_each([&](uint32_t core) {
      if (gang.has(core)) {
        cores.insert(core);
      }
    });
    return cores;
  }

  struct Open {
    uint32_t launch, step;
    spec::CoreSet missing;  // cores that have not begun it
    uint64_t number;
    void visit_state(spec::Archive& archive) { archive(launch, step, missing, number); }
  };
  spec::CoreSet board_;     // empty: has all cores
  std::vector<Open> open_;  // in the order in which they began
  uint64_t begun_ = 0;
};

}  // namespace tpu::model
