// A source whose examples stay in memory, as they are stored, once they have been read.
#pragma once

#include <memory>

#include "input/source.hpp"

namespace tpu::input {

/// From the second time on an example is neither read, verified nor parsed. Reading throws
/// driver::Error ResourceExhausted when the host has no room for more.
std::shared_ptr<const Source> cached_source(std::shared_ptr<const Source> source);

}  // namespace tpu::input
