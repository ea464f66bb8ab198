// Instance paths of the units that have Verilog, and what a pattern that matches none could mean.
#pragma once

#include <string>
#include <vector>

#include "tpu/spec/board_params.hpp"

namespace tpu::model {

// The matrix units of the board; its semaphores and DMA queues.
std::vector<std::string> mxu_paths(const spec::BoardParams& params);
std::vector<std::string> block_paths(const spec::BoardParams& params);

bool names_unit(const std::string& pattern, const std::string& path);
bool names_any(const std::string& pattern, const std::vector<std::string>& paths);

// The end of an error text, "; ..", or nothing. `paths`: what the pattern should match.
std::string unmatched_hint(const std::string& pattern, const std::vector<std::string>& paths,
                           const spec::BoardParams& params);

}  // namespace tpu::model
