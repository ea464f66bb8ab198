// Infeed and outfeed: they become transfers with the host, array by array.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "lowering/lowered.hpp"
#include "xla/hlo/ir/hlo_module.h"

namespace tpu::tensorflow {

/// Adds the transfers to those that the module has.
absl::Status move_feeds(xla::HloModule& module, std::vector<HostTransfer>& transfers);

}  // namespace tpu::tensorflow
