// What the debug port says of launches that hang, put into words with names and source lines.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "files/files.hpp"
#include "src/board/board_impl.hpp"
#include "src/residency/program.hpp"
#include "src/texts/firmware.hpp"
#include "src/texts/hang_report.hpp"

namespace tpu::driver {

namespace {

bool runs_on(const Operation& op, uint32_t core) {
  return op.residence && std::ranges::any_of(op.residence->parts, [core](const auto& part) {
           return static_cast<uint32_t>(part.device) == core;
         });
}

}  // namespace

// The text, which ends with a line feed if there is any; also writes the file that
// OpenOptions::hang_report asks for.
std::string BoardImpl::tell_hang(const char* kind, const Operation* op,
                                 const std::vector<UnitWait>& waits, const TransportStats& stats) {
  HangReport report{.kind = kind, .what = {}, .waits = waits, .harts = {}, .program = {}};
  report.what = op != nullptr ? op->what : std::string();
  report.program = [&](uint32_t core) -> const exe::ExecutableT* {
    const Operation* on_core = op;
    if (op == nullptr || !runs_on(*op, core)) {
      on_core = core < devices_.size() ? devices_[core].first_launch() : nullptr;
    }
    return on_core != nullptr && on_core->program ? &on_core->program->exe : nullptr;
  };
  for (size_t i = 0; i < stats.harts.size(); ++i) {
    report.harts.push_back(
        {.device = static_cast<int>(i),
         .sleeping = stats.harts[i].sleeping,
         .pc = stats.harts[i].pc,
         .frames = firmware_trace(harts_.names(), harts_.build(), stats.harts[i])});
  }
  std::string text = hang_text(report) + stats.waits_text;
  if (!hang_report_.empty()) {
    try {
      const std::string json = hang_json(report);
      write_file(hang_report_, std::as_bytes(std::span(json)));
    } catch (const Error& error) {
      text += fmt::format("the report of the hang was not written: {}\n", error.message());
    }
  }
  return text;
}

}  // namespace tpu::driver
