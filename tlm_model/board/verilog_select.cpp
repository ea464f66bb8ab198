// Patterns of Verilog blocks: parsing, matching, reports. Blocks report from the kernel's thread.
#include "board/verilog_select.hpp"

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "board/append_line.hpp"
#include "board/unit_paths.hpp"

namespace tpu::model {
namespace {

constexpr std::string_view kSemaphores = ".sem";

VerilogMode mode_of(const std::string& text, const std::string& option) {
  if (text == "model") {
    return VerilogMode::kModel;
  }
  if (text == "rtl") {
    return VerilogMode::kRtl;
  }
  if (text == "lockstep") {
    return VerilogMode::kLockstep;
  }
  throw std::runtime_error(option + ": '" + text + "': expected model, rtl or lockstep");
}

}  // namespace

VerilogSelect::VerilogSelect(const spec::SimOptions& sim, const spec::BoardParams& params) {
  const std::vector<std::string> paths = block_paths(params);
  for (const auto& [pattern, text] : sim.verilog) {
    const std::string option = "SimOptions::verilog " + pattern + "=" + text;
    if (!names_any(pattern, paths)) {
      throw std::runtime_error(option + ": matches no block with Verilog; this board has " +
                               paths[0] + ", " + paths[1] + ", .. to " + paths.back() +
                               unmatched_hint(pattern, paths, params));
    }
    choices_.push_back({.pattern = pattern, .text = text, .mode = mode_of(text, option)});
  }
}

VerilogUse VerilogSelect::use(const std::string& path) {
  const auto choice = std::find_if(choices_.rbegin(), choices_.rend(), [&](const Choice& each) {
    return names_unit(each.pattern, path);
  });
  if (choice == choices_.rend()) {
    return {};
  }
  Choice* const chosen = &*choice;
  uint64_t* const of_kind = path.ends_with(kSemaphores) ? &semaphore_values_ : &transfers_;
  return {.mode = chosen->mode,
          .compared =
              [chosen, of_kind] {
                ++chosen->compared;
                ++*of_kind;
              },
          .differs = [this, path](const std::string& text) { differs(path, text); }};
}

void VerilogSelect::differs(const std::string& path, const std::string& text) {
  ++mismatches_;
  reports_.add(path, text);
}

std::string VerilogSelect::finish(uint64_t steps) const {
  std::string text;
  for (const Choice& choice : choices_) {
    if (choice.mode == VerilogMode::kLockstep && choice.compared == 0 && steps != 0) {
      append_line(text, "SimOptions::verilog " + choice.pattern + "=" + choice.text +
                            ": nothing was compared: these blocks had nothing to do in this run");
    }
  }
  return text;
}

}  // namespace tpu::model
