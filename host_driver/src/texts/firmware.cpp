// Adapter to the library tpu::firmware_image, which the firmware build makes.
#include "src/texts/firmware.hpp"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <map>

#include "check/near_names.hpp"
#include "file/whole_file.hpp"
#include "image/elf_image.hpp"
#include "image/firmware_image.hpp"
#include "tpu/error.hpp"
#include "tpu/spec/hart_map.h"

namespace tpu::driver {
namespace {

bool known_code(const firmware::Image& names, uint32_t build, uint32_t address) {
  const bool rom = address < TPU_HART_ROM_BASE + TPU_HART_ROM_BYTES;
  return rom || names.build == 0 || (build != 0 && build == names.build);
}

// The first address of each function that is known.
std::map<std::string, uint32_t, std::less<>> functions_of(const firmware::Image& names,
                                                          uint32_t build) {
  std::map<std::string, uint32_t, std::less<>> functions;
  for (const firmware::CodeLine& line : names.lines) {
    const std::string_view name = names.names[line.function];
    if (!name.empty() && known_code(names, build, line.address)) {
      functions.emplace(name, line.address);
    }
  }
  return functions;
}

// No copy: it is there as long as the process.
std::shared_ptr<const firmware::Image> forever(const firmware::Image& image) {
  return {std::shared_ptr<void>(), &image};
}

FirmwareImage built_in(const firmware::Image& image) {
  FirmwareImage result{.entry = TPU_HART_ITCM_BASE, .names = forever(image)};
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

FirmwareImage from_file(const std::string& path) {
  try {
    const std::shared_ptr<const firmware::ElfImage> elf = firmware::read_elf_image(path);
    const auto bytes = std::as_bytes(std::span(elf->bytes));
    return {
        .bytes = {bytes.begin(), bytes.end()}, .entry = elf->entry, .names = {elf, &elf->image}};
  } catch (const firmware::ElfError& error) {
    throw Error(ErrorCode::kInvalidArgument, error.what());
  } catch (const spec::FileError& error) {
    throw Error(ErrorCode::kInvalidArgument, error.what());
  }
}

}  // namespace

FirmwareImage firmware_of(const OpenOptions& options) {
  if (!options.firmware_file.empty()) {
    if (!options.firmware.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "two firmwares: OpenOptions::firmware and OpenOptions::firmware_file");
    }
    if (options.transport != "sim" && !options.factory) {
      throw Error(ErrorCode::kInvalidArgument,
                  "OpenOptions::firmware_file with the null transport, which has no firmware: this "
                  "needs OpenOptions::transport to be sim");
    }
    return from_file(options.firmware_file);
  }
  if (!options.firmware.empty()) {
    return {.bytes = options.firmware,
            .entry = TPU_HART_ITCM_BASE,
            .names = forever(firmware::image())};
  }
  return built_in(options.sim.firmware_log.empty() ? firmware::image() : firmware::log_image());
}

std::string firmware_place(const firmware::Image& names, uint32_t build, uint32_t address) {
  return known_code(names, build, address) ? firmware::code_place(names, address) : std::string();
}

std::string trigger_with_address(const firmware::Image& names, uint32_t build,
                                 const std::string& trigger) {
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
  const auto functions = functions_of(names, build);
  const auto function = functions.find(name);
  if (function == functions.end()) {
    std::vector<std::string> known;
    for (const auto& [each, address] : functions) {
      known.push_back(each);
    }
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "SimOptions::waves_trigger {}: the firmware has no function {}; like it are {}; "
            "an address (0x...) can be named too",
            trigger, name, spec::near_names(name, known)));
  }
  return fmt::format("{}@{:#x}", trigger, function->second);
}

std::vector<std::string> firmware_trace(const firmware::Image& names, uint32_t build,
                                        const HartPlace& hart) {
  std::vector<std::string> frames;
  for (const uint32_t address : firmware::back_trace(names, hart.pc, hart.ra, hart.stack)) {
    // A caller stands in its call, in front of the address that it goes on at.
    std::string place = firmware_place(names, build, frames.empty() ? address : address - 1);
    if (place.empty()) {
      break;
    }
    frames.push_back(std::move(place));
  }
  return frames;
}

}  // namespace tpu::driver
