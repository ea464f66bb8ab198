// See output.hpp.
#include "cli/output.hpp"

#include <fmt/format.h>

#include <system_error>

#include "file/output_file.hpp"
#include "import/file.hpp"
#include "ir/error.hpp"

namespace tpu::compiler {

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  try {
    spec::OutputFile file(path);
    file.add(bytes);
    file.finish();
  } catch (const std::system_error& error) {
    throw Error("cannot write '" + path + "': " + error.code().message() +
                "; nothing was written there");
  }
}

std::string default_output(const std::string& program) { return program_name(program) + ".tpuexe"; }

std::string to_text(const PassReport& report) {
  double seconds = 0;
  std::string text = fmt::format("{:<20}{:>5}{:>10}  {:<8}{:>8}{:>9}{:>8}{:>9}\n", "pass", "runs",
                                 "ms", "unit", "before", "removed", "made", "after");
  for (const PassStats& s : report.passes()) {
    seconds += s.seconds;
    text += fmt::format("{:<20}{:>5}{:>10.2f}  {:<8}{:>8}{:>9}{:>8}{:>9}\n", s.pass, s.runs,
                        s.seconds * 1e3, s.unit, s.before, s.removed, s.made, s.after);
    for (const auto& [why, times] : s.gave_up) {
      text += fmt::format("    gave up {} x: {}\n", times, why);
    }
  }
  return text + fmt::format("{:<20}{:>5}{:>10.2f}\n", "total", "", seconds * 1e3);
}

}  // namespace tpu::compiler
