// Registers and memories of the control harts, by the debug port.
#include <fmt/format.h>

#include "registers/register_name.hpp"
#include "src/board/board_impl.hpp"

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

void BoardImpl::check_hart(int device) const {
  if (device < 0 || static_cast<size_t>(device) >= devices_.size()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("there is no TPU:{}; the board has 0 to {}", device, devices_.size() - 1));
  }
}

uint32_t BoardImpl::peek_word(int device, const std::string& place) {
  const Entry entry(*this, EntryKind::kLook);
  health_.check_usable();
  check_hart(device);
  const std::optional<uint32_t> value = transport_->debug_read(device, address_of(place));
  if (!value) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("TPU:{} {}: nothing that can be read", device, place));
  }
  return *value;
}

void BoardImpl::poke_word(int device, const std::string& place, uint32_t value) {
  const Entry entry(*this);
  health_.check_usable();
  check_hart(device);
  if (!transport_->debug_write(device, address_of(place), value)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("TPU:{} {}: nothing that can be written", device, place));
  }
}

}  // namespace tpu::driver
