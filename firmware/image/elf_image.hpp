// Firmware of the user's own from an ELF file: the image that the mask ROM boots, and the names of
// its functions. What cannot run on a control hart is refused.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "image/firmware_image.hpp"

namespace tpu::firmware {

// "PATH: what is wrong; what to do".
class ElfError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// `image` points into the other members. It has no build and no frames but those of the mask ROM.
struct ElfImage {
  ElfImage() = default;
  ElfImage(const ElfImage&) = delete;
  ElfImage& operator=(const ElfImage&) = delete;

  Image image{};
  uint32_t entry = 0;  // hart address
  std::vector<uint8_t> bytes;
  std::vector<CodeLine> lines;
  std::vector<std::string> texts;
  std::vector<std::string_view> names;
};

// Throws ElfError, spec::FileError.
std::shared_ptr<const ElfImage> read_elf_image(const std::string& path);

}  // namespace tpu::firmware
