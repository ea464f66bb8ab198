// Adapter to the library tpu::firmware_image, which the firmware build makes.
#include "src/board/firmware.hpp"

#include <openssl/sha.h>

#include <algorithm>
#include <array>

#include "image/firmware_image.hpp"
#include "tpu/error.hpp"
#include "tpu/spec/hart_map.h"

namespace tpu::driver {

FirmwareImage built_in_firmware() {
  const firmware::Image& image = firmware::image();
  FirmwareImage result;
  result.entry = TPU_HART_ITCM_BASE;
  if (image.bytes.empty()) {
    return result;
  }
  std::array<uint8_t, SHA256_DIGEST_LENGTH> hash{};
  SHA256(image.bytes.data(), image.bytes.size(), hash.data());
  if (!std::equal(hash.begin(), hash.end(), image.sha256.begin(), image.sha256.end())) {
    throw Error(ErrorCode::kInternal,
                "firmware image corrupt: it does not match the SHA-256 beside it");
  }
  const auto bytes = std::as_bytes(image.bytes);
  result.bytes.assign(bytes.begin(), bytes.end());
  result.build = image.build;
  return result;
}

std::string firmware_place(uint32_t build, uint32_t address) {
  const firmware::Image& image = firmware::image();
  const bool rom = address < TPU_HART_ROM_BASE + TPU_HART_ROM_BYTES;
  return rom || (build != 0 && build == image.build) ? firmware::code_place(image, address)
                                                     : std::string();
}

std::vector<std::string> firmware_trace(uint32_t build, const HartPlace& hart) {
  std::vector<std::string> frames;
  for (const uint32_t address :
       firmware::back_trace(firmware::image(), hart.pc, hart.ra, hart.stack)) {
    // A caller stands in its call, in front of the address that it goes on at.
    std::string place = firmware_place(build, frames.empty() ? address : address - 1);
    if (place.empty()) {
      break;
    }
    frames.push_back(std::move(place));
  }
  return frames;
}

}  // namespace tpu::driver
