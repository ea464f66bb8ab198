// Places of the control harts by name or address.
#include "src/facets/debug_port.hpp"

#include <fmt/format.h>

#include "registers/register_name.hpp"

namespace tpu::driver {
namespace {

uint32_t address_of(const std::string& place) {
  try {
    return spec::hart_address(place);
  } catch (const spec::RegisterNameError& error) {
    throw Error(ErrorCode::kInvalidArgument, error.what());
  }
}

}  // namespace

void DebugPort::check_hart(int device) const {
  if (device < 0 || static_cast<size_t>(device) >= devices_.size()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("there is no TPU:{}; the board has 0 to {}", device, devices_.size() - 1));
  }
}

uint32_t DebugPort::peek_word(int device, const std::string& place) {
  const Door::Entry entry(door_, EntryKind::kLook);
  health_.check_usable();
  check_hart(device);
  const std::optional<uint32_t> value = transport_->debug_read(device, address_of(place));
  if (!value) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("TPU:{} {}: nothing that can be read", device, place));
  }
  return *value;
}

void DebugPort::poke_word(int device, const std::string& place, uint32_t value) {
  const Door::Entry entry(door_);
  health_.check_usable();
  check_hart(device);
  if (!transport_->debug_write(device, address_of(place), value)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("TPU:{} {}: nothing that can be written", device, place));
  }
}

}  // namespace tpu::driver
