// CRC-32C (Castagnoli), the checksum of ring entries, slot tables, device images, the firmware and
// the records of training data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tpu::spec {

/// Usual form: initial value and final xor are all ones. `crc` continues an earlier result. Uses
/// the CRC instruction of the host where it has one.
uint32_t crc32c(std::span<const std::byte> data, uint32_t crc = 0);

/// The same by tables alone, for hosts without the instruction.
uint32_t crc32c_portable(std::span<const std::byte> data, uint32_t crc = 0);

}  // namespace tpu::spec
