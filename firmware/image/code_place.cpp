// Addresses of the firmware as function and source line, and its frames.
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

std::vector<uint32_t> back_trace(const Image& image, uint32_t pc, uint32_t ra,
                                 std::span<const uint32_t> stack) {
  constexpr size_t kMostFrames = 64;
  std::vector<uint32_t> trace = {pc};
  uint32_t at = pc;
  while (trace.size() < kMostFrames) {
    const auto behind = std::ranges::upper_bound(image.unwind, at, {}, &UnwindRow::address);
    if (behind == image.unwind.begin()) {
      break;
    }
    const UnwindRow& row = *(behind - 1);
    const int64_t return_at = row.frame_bytes + row.return_at;
    const size_t word = static_cast<size_t>(return_at) / sizeof(uint32_t);
    if (row.frame_bytes == UnwindRow::kNoFrame ||
        static_cast<size_t>(row.frame_bytes) / sizeof(uint32_t) > stack.size()) {
      break;
    }
    if (row.return_at != UnwindRow::kInRegister && word >= stack.size()) {
      break;
    }
    // Only the innermost function can have its return address in the register.
    if (row.return_at == UnwindRow::kInRegister && trace.size() > 1) {
      break;
    }
    const uint32_t caller = row.return_at == UnwindRow::kInRegister ? ra : stack[word];
    if (caller == 0) {
      break;
    }
    stack = stack.subspan(static_cast<size_t>(row.frame_bytes) / sizeof(uint32_t));
    trace.push_back(caller);
    at = caller - 1;  // in the call, which may be the last instruction of its function
  }
  return trace;
}

}  // namespace tpu::firmware
