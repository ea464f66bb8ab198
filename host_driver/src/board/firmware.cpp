// Adapter to the library tpu::firmware_image, which the firmware build makes.
#include "src/board/firmware.hpp"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <map>

#include "file/near_names.hpp"
#include "image/firmware_image.hpp"
#include "tpu/error.hpp"
#include "tpu/spec/hart_map.h"

namespace tpu::driver {
namespace {

bool known_code(const firmware::Image& image, uint32_t build, uint32_t address) {
  const bool rom = address < TPU_HART_ROM_BASE + TPU_HART_ROM_BYTES;
  return rom || (build != 0 && build == image.build);
}

// The first address of each function that is known.
std::map<std::string, uint32_t, std::less<>> functions_of(uint32_t build) {
  const firmware::Image& image = firmware::image();
  std::map<std::string, uint32_t, std::less<>> functions;
  for (const firmware::CodeLine& line : image.lines) {
    const std::string_view name = image.names[line.function];
    if (!name.empty() && known_code(image, build, line.address)) {
      functions.emplace(name, line.address);
    }
  }
  return functions;
}

}  // namespace

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
  return known_code(image, build, address) ? firmware::code_place(image, address) : std::string();
}

std::string trigger_with_address(uint32_t build, const std::string& trigger) {
  constexpr std::string_view kKind = "firmware=";
  if (!trigger.starts_with(kKind)) {
    return trigger;
  }
  const size_t colon = trigger.rfind(':');
  const size_t at = colon == std::string::npos ? kKind.size() : colon + 1;
  const std::string name = trigger.substr(at);
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name.front())) != 0) {
    return trigger;
  }
  const auto functions = functions_of(build);
  const auto function = functions.find(name);
  if (function == functions.end()) {
    std::vector<std::string> names;
    for (const auto& [each, address] : functions) {
      names.push_back(each);
    }
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--waves-trigger {}: the firmware has no function {}; like it are {}; "
                            "an address (0x...) can be named too",
                            trigger, name, spec::near_names(name, names)));
  }
  return fmt::format("{}{:#x}", trigger.substr(0, at), function->second);
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
