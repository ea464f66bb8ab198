// Random numbers as functions of a seed.
#pragma once

#include "absl/status/status.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tpu::tensorflow {

/// Random numbers (Philox) count from a place that the seed of the launch chooses, and go on from
/// one operation to the next, and from one iteration of a loop to the next. `seeded`: there are
/// some; then the last parameter of the entry is the seed, a u32. On several cores
/// of a replica it has an element for each, and that of the first one counts.
absl::Status seed_random_numbers(xla::HloModule& module, bool& seeded, int cores = 1);

}  // namespace tpu::tensorflow
