// What the debug port says of programs, put into words with names and source lines: launches that
// hang, and findings of the happens-before checker.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "files/files.hpp"
#include "src/board/board_impl.hpp"
#include "src/board/firmware.hpp"
#include "src/board/hang_report.hpp"
#include "src/residency/program.hpp"

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
         .frames = firmware_trace(*firmware_names_, firmware_build_, stats.harts[i])});
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

// At the end of a launch, while its program is known. Returns what it adds to check_text_.
std::string BoardImpl::tell_findings(const Operation& op) {
  try {
    for (CheckFinding& finding : transport_->take_findings()) {
      findings_.push_back(std::move(finding));
    }
  } catch (const std::exception&) {
    return {};  // the model broke; who waits for the board hears of it
  }
  const ProgramOfCore program = [&op](uint32_t) { return &op.program->exe; };
  std::string text;
  std::optional<uint64_t> step;
  std::erase_if(findings_, [&](const CheckFinding& finding) {
    if (finding.launch != op.launch_id) {
      return false;
    }
    step = std::min(step.value_or(finding.step), finding.step);
    text +=
        fmt::format("step {}: {} {}", finding.step, place_text(finding.who, program), finding.what);
    text += finding.other ? " " + place_text(*finding.other, program) : std::string();
    text += finding.where.empty() ? "\n" : ": " + finding.where + "\n";
    return true;
  });
  if (step) {  // a schedule is that of its step; without one all steps are alike
    text += fmt::format(
        "again: tpuboard run {}.tpuexe{} --check --no-data{}\n", op.program->exe.name, board_words_,
        sim_.schedule_seed == 0 ? ""
                                : fmt::format(" --schedule-seed {}", sim_.schedule_seed + *step));
  }
  check_text_ += text;
  return text;
}

}  // namespace tpu::driver
