// A step of a training run as a monitor sees it.
#pragma once

#include "job/snapshot.hpp"
#include "loop/trainer.hpp"

namespace tpu::driver {

/// `has_data`: false for a board that computes nothing; then there are no losses.
monitor::Progress seen_from_outside(const training::Progress& at, bool has_data);

}  // namespace tpu::driver
