// Arrays of the host with strides as dense bytes.
#pragma once

#include <span>
#include <vector>

#include "tpu/tpu.hpp"

namespace tpu::pjrt {

/// The elements of the view, row-major: the view's own bytes if they lie so, else a copy in `own`.
std::span<const std::byte> dense(const driver::HostView& view, std::vector<std::byte>& own);

}  // namespace tpu::pjrt
