// The firmware as data, built into the program: what the driver uploads and the model's mask ROM
// holds. The arrays come from the firmware's own build; a build without the RISC-V cross compiler
// has empty ones.
#pragma once

#include <cstdint>
#include <span>

namespace tpu::firmware {

struct Image {
  std::span<const uint8_t>
      bytes;  // for ITCM from its first byte on; entry: first byte; empty: not built
  std::span<const uint8_t> rom;     // mask ROM of every hart
  std::span<const uint8_t> sha256;  // of `bytes`, 32 bytes
  uint32_t crc32c;                  // of `bytes`, for BOOT_CRC
  uint32_t build;                   // what the running firmware writes to FW_BUILD
};

const Image& image();

}  // namespace tpu::firmware
