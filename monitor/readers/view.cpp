// Text: a head of a few lines, then a line a core.
#include "readers/view.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "terminal/counted.hpp"
#include "terminal/printable_text.hpp"
#include "terminal/text_bar.hpp"

namespace tpu::monitor {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

std::string progress_line(const Progress& at, const Figures& lately) {
  std::string text = fmt::format("step {}", at.step);
  if (at.steps > 0) {
    text += fmt::format(" of {}", at.steps);
  }
  if (at.epoch > 0) {
    text += fmt::format("  epoch {}", at.epoch);
  }
  if (at.loss) {
    text += fmt::format("  loss {:.4f}", *at.loss);
  }
  for (const auto& [name, value] : at.values) {
    text += fmt::format("  {} {:.4g}", name, value);
  }
  text += fmt::format("  {:.1f} steps/s", lately.steps_per_second);
  if (lately.left_seconds) {
    text += fmt::format("  {} left", spec::duration_text(*lately.left_seconds));
  }
  return text + "\n";
}

void put(std::FILE* to, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), to);
  std::fflush(to);
}

}  // namespace

std::string view(const Report& report, double age) {
  const Snapshot& now = report.now;
  const Figures& lately = report.lately;
  std::string text =
      fmt::format("{}  (process {})\nboard {}  running {}  simulated time {:.3f} s\n", now.command,
                  now.pid, now.board, spec::duration_text(now.taken - now.started),
                  now.clock_hz > 0 ? static_cast<double>(now.cycles) / now.clock_hz : 0);
  constexpr double kOld = 5;
  if (age > kOld) {
    text += fmt::format("no news for {}: the host is busy with one command of the board\n",
                        spec::duration_text(age));
  }
  if (now.progress) {
    text += progress_line(*now.progress, lately);
  }
  const TimeShares& time = lately.time;
  text += fmt::format("MXU {:.2f} %  idle {:.2f} %{}\n", 100 * lately.mxu, 100 * time.idle(),
                      lately.board_seconds > 0 ? "" : "  (simulated time does not advance)");
  text += fmt::format(
      "time  compute {:.1f} %  all-reduce {:.1f} %  HBM {:.1f} %  waiting {:.1f} %  "
      "idle: input {:.1f} %, host {:.1f} %\n",
      100 * time.compute, 100 * time.links, 100 * time.hbm, 100 * time.stalled, 100 * time.input,
      100 * time.host);
  for (const spec::FaultTally& tally : now.faults) {
    text +=
        fmt::format("fault on purpose {} {}: happened {}, damage met {}\n", tally.kind, tally.place,
                    spec::counted(tally.fired, "time"), spec::counted(tally.seen, "time"));
  }
  text += "core     MXU %   idle %      HBM used      HBM GB/s   links GB/s\n";
  for (size_t i = 0; i < now.cores.size() && i < lately.cores.size(); ++i) {
    const CoreSnapshot& core = now.cores[i];
    const CoreFigures& figures = lately.cores[i];
    text += fmt::format(
        "TPU:{:<3}{:>7.2f}{:>9.2f}{:>8.2f} /{:>3.0f} GiB{:>12.1f}{:>13.1f}\n", i, 100 * figures.mxu,
        100 * figures.time.idle(), static_cast<double>(core.hbm_used) / kGib,
        static_cast<double>(core.hbm_bytes) / kGib, figures.hbm_gbps, figures.link_gbps);
  }
  return spec::printable_lines(text);  // commands and board names are other processes'
}

std::function<void(const Report&)> live_view(std::FILE* to, bool wanted) {
  if (!wanted) {
    return {};
  }
  if (isatty(fileno(to)) == 0) {
    return [to](const Report& report) { put(to, json_line(report) + "\n"); };
  }
  return [to, cleared = false](const Report& report) mutable {
    std::string text = cleared ? "\x1b[H" : "\x1b[2J\x1b[H";
    cleared = true;
    for (const char each : view(report, seconds_since_1970() - report.now.taken)) {
      text += each == '\n' ? "\x1b[K\n" : std::string(1, each);
    }
    put(to, text + "\x1b[J");
  };
}

}  // namespace tpu::monitor
