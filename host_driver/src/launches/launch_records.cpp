// Figures and findings of launches by the names of their operations.
#include "src/launches/launch_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "src/residency/program.hpp"
#include "src/texts/hang_report.hpp"
#include "src/texts/shell_word.hpp"

namespace tpu::driver {
namespace {

// The command that shows findings of a program again. `seed` 0: none.
std::string again_text(const LoadedProgram& program, const std::string& board_words,
                       uint64_t seed) {
  const std::string saved = program.exe.name + ".tpuexe";
  const int device = program.info->devices.front();
  return fmt::format(
      "again{}: tpuboard run {}{}{} --check --no-data{}\n",
      program.file.empty() ? fmt::format(", with the program saved as {}", saved) : "",
      shell_word(program.file.empty() ? saved : program.file), board_words,
      program.exe.partitions == 1 && device != 0 ? fmt::format(" --device {}", device) : "",
      seed == 0 ? "" : fmt::format(" --schedule-seed {}", seed));
}

}  // namespace

void LaunchRecords::set_options(const SimOptions& sim) {
  if (sim.op_times && !sim_.op_times) {
    op_counts_.clear();
  }
  sim_ = sim;
}

void LaunchRecords::end(const Operation& launch) {
  if (sim_.op_times) {
    try {
      op_counts_.add(launch.program->owner, transport_->take_op_times(launch.launch_id));
    } catch (const std::exception&) {
      // The model broke; who waits for the board hears of it.
    }
  }
  take_findings(launch);
}

std::string LaunchRecords::take_findings(const Operation& launch) {
  return sim_.check ? tell_findings(launch) : std::string();
}

std::string LaunchRecords::tell_findings(const Operation& op) {
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
    text += again_text(*op.program, board_words_,
                       sim_.schedule_seed == 0 ? 0 : sim_.schedule_seed + *step);
  }
  check_text_ += text;
  return text;
}

}  // namespace tpu::driver
