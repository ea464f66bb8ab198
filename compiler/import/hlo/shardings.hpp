// OpSharding as GSPMD's strings, which the import reads (gspmd.hpp). Private to the import.
#pragma once

#include <string>
#include <vector>

#include "import/hlo/hlo_module.hpp"

namespace tpu::compiler::hlo {

class Step;

// One string for each of `leaves` arrays: a sharding that is not a tuple holds for all. Throws
// through `step`.
std::vector<std::string> gspmd_texts(const Sharding& sharding, size_t leaves, const Step& step);

// True of what says something of an array that is not said by saying nothing.
bool is_constraint(const std::string& text);

}  // namespace tpu::compiler::hlo
