// Size of the caches that a thread of the host has.
#pragma once

#include <cstdint>
#include <string>

namespace tpu::model {

// Bytes of the last-level cache that one processor reaches, as the kernel tells in `folder`; 0 if
// it does not say. Not sysconf(): of an AMD host that is the sum over all its parts of the package,
// of which a thread has one.
uint64_t last_level_cache_bytes(const std::string& folder = "/sys/devices/system/cpu/cpu0/cache");

}  // namespace tpu::model
