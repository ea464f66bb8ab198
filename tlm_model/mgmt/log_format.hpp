// Log lines of the firmware: a text as for printf, filled in outside of the hart.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace tpu::model {

// Conversions %d %i %u %x %X %o %c %p %s %% with flags, width and precision; the lengths hh, h, l,
// z and t mean nothing, all arguments are words. `text_at` reads the text of %s. What cannot be
// filled in stands in the line as "%!".
std::string format_log(std::string_view format, std::span<const uint32_t> args,
                       const std::function<std::string(uint32_t address)>& text_at);

}  // namespace tpu::model
