// Numbers the steps of a board from 0, in the order in which they begin: those of all launches
// together, training and evaluation alike. The cores of a gang share a number. What names steps to
// people counts them so: windows of waves and of lockstep, traces.
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
    spec::CoreSet missing = gang;
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
  struct Open {
    uint32_t launch, step;
    spec::CoreSet missing;  // cores that have not begun it
    uint64_t number;
    void visit_state(spec::Archive& archive) { archive(launch, step, missing, number); }
  };
  std::vector<Open> open_;  // in the order in which they began
  uint64_t begun_ = 0;
};

}  // namespace tpu::model
