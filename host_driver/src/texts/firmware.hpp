// The firmware that a board boots: one of those built in, or the user's own; and the names of its
// code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tpu/transport.hpp"

namespace tpu::driver {

struct FirmwareImage {
  std::vector<std::byte> bytes{};  ///< from the start of ITCM; empty when none is built in
  uint32_t entry = 0;              ///< hart address
  uint32_t build = 0;              ///< what the running firmware writes to FW_BUILD; 0: not known
  /// Names of code; of a flat image those of the one that is built in, which it may be.
  std::shared_ptr<const firmware::Image> names{};
};

/// What the options ask for. An image that is built in is checked against the SHA-256 beside it;
/// throws Internal when it differs, InvalidArgument for a file that is no firmware.
FirmwareImage firmware_of(const OpenOptions& options);

/// Function and line of an address in firmware of this build, "nop_check (track.c:18)"; empty
/// when it is not the image that `names` is of. The mask ROM is always known.
std::string firmware_place(const firmware::Image& names, uint32_t build, uint32_t address);

/// A trigger of waves that names a function of the firmware, "firmware=launch_start", with its
/// address in the function's place; other triggers as they are. Throws InvalidArgument with names
/// that are like it where there is no such function; of a flat image of the caller only those of
/// the mask ROM are known.
std::string trigger_with_address(const firmware::Image& names, uint32_t build,
                                 const std::string& trigger);

/// The functions that a hart is in, from the innermost out, as firmware_place(); empty as there.
std::vector<std::string> firmware_trace(const firmware::Image& names, uint32_t build,
                                        const HartPlace& hart);

}  // namespace tpu::driver
