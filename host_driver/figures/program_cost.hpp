// What a program costs, from the tables of its executable.
#pragma once

#include "exe/executable.hpp"
#include "tpu/executable.hpp"

namespace tpu::driver {

ProgramCost program_cost(const exe::ExecutableT& exe);

}  // namespace tpu::driver
