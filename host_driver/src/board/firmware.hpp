// The firmware image that is built into the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tpu/transport.hpp"

namespace tpu::driver {

struct FirmwareImage {
  std::vector<std::byte> bytes;  ///< from the start of ITCM; empty when none is built in
  uint32_t entry = 0;            ///< hart address
  uint32_t build = 0;            ///< what the running firmware writes to FW_BUILD
};

/// Checks the image against the SHA-256 built in beside it; throws Internal when it differs.
FirmwareImage built_in_firmware();

/// Function and line of an address in the firmware of this build, "nop_check (track.c:18)"; empty
/// when it is not the image that is built in. The mask ROM is always known.
std::string firmware_place(uint32_t build, uint32_t address);

/// A trigger of waves that names a function of the firmware, "firmware=launch_start", with its
/// address in the function's place; other triggers as they are. Throws InvalidArgument with names
/// that are like it where there is no such function; of firmware that is not built in only those of
/// the mask ROM are known.
std::string trigger_with_address(uint32_t build, const std::string& trigger);

/// The functions that a hart is in, from the innermost out, as firmware_place(); empty as there.
std::vector<std::string> firmware_trace(uint32_t build, const HartPlace& hart);

}  // namespace tpu::driver
