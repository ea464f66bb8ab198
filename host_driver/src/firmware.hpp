// The firmware image that is built into the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tpu::driver {

struct FirmwareImage {
  std::vector<std::byte> bytes;  ///< from the start of ITCM; empty when none is built in
  uint32_t entry = 0;            ///< hart address
  uint32_t build = 0;            ///< what the running firmware writes to FW_BUILD
};

/// Checks the image against the SHA-256 built in beside it; throws Internal when it differs.
FirmwareImage built_in_firmware();

}  // namespace tpu::driver
