// tpuboard monitor: figures of a job that runs, read from the file in which it tells of itself.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "cli/commands.hpp"
#include "job/jobs.hpp"
#include "readers/view.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

struct MonitorArguments {
  std::string folder;
  int64_t pid = 0;
  double interval = 1;
  bool json = false;
  bool once = false;
};

monitor::Report need_news(const std::filesystem::path& folder, int64_t pid) {
  monitor::JobNews news = monitor::read_job(folder, pid);
  if (!news.report) {
    throw Error(ErrorCode::kFailedPrecondition, fmt::format("job {} has just ended", pid));
  }
  return std::move(*news.report);
}

void show_once(const monitor::Report& report, bool json) {
  if (json) {
    fmt::print("{}\n", monitor::json_line(report));
  } else {
    fmt::print("{}", monitor::view(report, monitor::seconds_since_1970() - report.now.taken));
  }
}

// Until the job ends, or whoever reads goes away.
void follow(const std::filesystem::path& folder, int64_t pid, const MonitorArguments& arguments) {
  const auto live = monitor::live_view(stdout);
  for (double shown = 0; std::ferror(stdout) == 0;) {
    const monitor::JobNews news = monitor::read_job(folder, pid);
    if (!news.report) {
      if (news.end == monitor::JobEnd::kKilled) {
        throw Error(ErrorCode::kFailedPrecondition,
                    fmt::format("job {} was killed: its process is gone", pid));
      }
      fmt::print(stderr, "tpuboard: job {} has ended\n", pid);
      return;
    }
    if (!arguments.json) {
      live(*news.report);
    } else if (news.report->now.taken != shown) {
      shown = news.report->now.taken;
      show_once(*news.report, true);
      std::fflush(stdout);
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(arguments.interval));
  }
}

void run_monitor(const MonitorArguments& arguments) {
  const std::filesystem::path folder =
      arguments.folder.empty() ? monitor::jobs_folder() : std::filesystem::path(arguments.folder);
  const int64_t pid = monitor::choose_job(folder, arguments.pid);
  if (arguments.once) {
    show_once(need_news(folder, pid), arguments.json);
  } else {
    follow(folder, pid, arguments);
  }
}

}  // namespace

void add_monitor_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("monitor", "Watch a job that runs");
  auto arguments = std::make_shared<MonitorArguments>();
  command->add_option("--pid", arguments->pid, "Its process; left out: the only job there is")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->type_name("N");
  command->add_option("--interval", arguments->interval, "Seconds between two looks")
      ->check(CLI::Range(0.05, 86400.0))
      ->capture_default_str()
      ->type_name("SECONDS");
  command->add_flag("--json", arguments->json,
                    "One line of JSON for each look, as where standard output is no terminal");
  command->add_flag("--once", arguments->once, "Show the figures once, and end");
  command
      ->add_option("--folder", arguments->folder,
                   "Where jobs tell of themselves (default: $XDG_RUNTIME_DIR/tpuboard)")
      ->type_name("DIR");
  command->callback([arguments] { run_monitor(*arguments); });
}

}  // namespace tpu::driver
