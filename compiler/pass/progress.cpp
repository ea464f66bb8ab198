// See progress.hpp.
#include "pass/progress.hpp"

#include <stdexcept>

namespace tpu::compiler {

void Progress::expect(std::string stage, double weight) {
  stages_.push_back({std::move(stage), weight});
  all_ += weight;
}

void Progress::begin(std::string_view stage) {
  if (!tell_) {
    return;
  }
  behind_ = 0;
  for (now_ = 0; now_ < stages_.size() && stages_[now_].name != stage; ++now_) {
    behind_ += stages_[now_].weight;
  }
  if (now_ == stages_.size()) {
    throw std::logic_error("internal: nobody expects the stage '" + std::string(stage) + "'");
  }
  within(0);
}

void Progress::within(double part) const {
  if (tell_) {
    tell_(stages_[now_].name, (behind_ + part * stages_[now_].weight) / all_);
  }
}

}  // namespace tpu::compiler
