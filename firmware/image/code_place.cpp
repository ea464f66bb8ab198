// Addresses of the firmware as function and source line.
#include <algorithm>

#include "image/firmware_image.hpp"

namespace tpu::firmware {

std::string code_place(const Image& image, uint32_t address) {
  const auto behind = std::ranges::upper_bound(image.lines, address, {}, &CodeLine::address);
  if (behind == image.lines.begin()) {
    return {};
  }
  const CodeLine& at = *(behind - 1);
  std::string text(image.names[at.function]);
  if (text.empty() || at.line == 0) {
    return text;
  }
  return text + " (" + std::string(image.names[at.file]) + ":" + std::to_string(at.line) + ")";
}

}  // namespace tpu::firmware
