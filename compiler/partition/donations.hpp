// Which result takes the memory of which donated argument. Private to the folder.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// A result that the program gives an argument's memory, but which lies otherwise, gives it back. A
// donated argument without a result takes the first free one of the same type and sharding.
void assign_donations(Function& f);

}  // namespace tpu::compiler
