// Host memory that another process can map.
#pragma once

#include <cstdint>

namespace tpu::driver {

struct SharedRange {
  uint64_t iova = 0;
  uint64_t bytes = 0;
  int file = -1;  ///< its descriptor, of size `bytes` or more
};

}  // namespace tpu::driver
