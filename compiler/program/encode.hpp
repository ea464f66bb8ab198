// Listing to device image (header and code words) and back from code words to items.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "program/listing.hpp"

namespace tpu::compiler {

struct ImageInfo {
  uint32_t slots = 0;
  uint32_t cores = 1;
  uint64_t board_hash = 0;
};

// Code = the listing in order (a halt must be its last item), then the VPU programs. Throws Error
// if a command is longer than its header can say.
std::vector<std::byte> encode_image(const Listing& listing, const ImageInfo& info);

}  // namespace tpu::compiler
