// Files beside a wave file that show its signals in a viewer at once: GTKWave save files, FILE.gtkw
// for all and FILE.SCOPE.gtkw for each core or chip, and commands for Surfer (FILE.sucl).
#pragma once

#include <string>

#include "waves/signal_tree.hpp"

namespace tpu::model {

// Empty, or which file could not be written.
std::string write_wave_views(const std::string& wave_path, const SignalTree& tree);

}  // namespace tpu::model
