// CRC-32C (Castagnoli), the checksum of ring entries, slot tables, device images and the firmware.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tpu::driver {

/// Usual form: initial value and final xor are all ones. `crc` continues an earlier result.
uint32_t crc32c(std::span<const std::byte> data, uint32_t crc = 0);

}  // namespace tpu::driver
