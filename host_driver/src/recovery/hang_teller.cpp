// The program of a core is that of the launch, or of what is first on its ring.
#include "src/recovery/hang_teller.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "file/files.hpp"
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

std::string HangTeller::tell(const char* kind, const Operation* op,
                             const std::vector<UnitWait>& waits,
                             const TransportStats& stats) const {
  HangReport report{.kind = kind,
                    .what = {},
                    .waits = waits,
                    .harts = {},
                    .program = {},
                    .one_process = one_process_};
  report.what = op != nullptr ? op->what : std::string();
  report.program = [&](uint32_t core) TPU_REQUIRES(board_lock) -> const exe::ExecutableT* {
    const Operation* on_core = op;
    if (op == nullptr || !runs_on(*op, core)) {
      on_core = core < devices_.size() ? devices_[static_cast<int>(core)].first_launch() : nullptr;
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
  if (!report_path_.empty()) {
    try {
      const std::string json = hang_json(report);
      write_file(report_path_, std::as_bytes(std::span(json)));
    } catch (const Error& error) {
      text += fmt::format("the report of the hang was not written: {}\n", error.message());
    }
  }
  return text;
}

}  // namespace tpu::driver
