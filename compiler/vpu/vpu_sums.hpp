// Word sums that are the same in all blocks of a command leave its body. Threefry adds a word of
// its key and the number of the round to each counter; both together are one number:
//   before   body  b = x + key; y = b + 3
//   after    pre   s = key + 3    body  y = x + s
#pragma once

#include "vpu/vpu_build.hpp"

namespace tpu::compiler {

// At most `most` sums move, since each keeps a register all the time. True if any instruction of
// the body has gone. `next`: the first free number of a virtual register.
bool move_invariant_sums(VpuSections& sections, int& next, int most);

}  // namespace tpu::compiler
