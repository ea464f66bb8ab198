// tpuboard monitor: figures of a job that runs, read from the file in which it tells of itself.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/become_program.hpp"
#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "job/jobs.hpp"
#include "readers/view.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

struct MonitorArguments {
  std::string folder;
  int64_t pid = 0;
  double interval = 1;
  bool json = false;
  bool once = false;
  std::optional<int> prometheus;
  std::optional<int> tpu_info;
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
    spec::print("{}\n", monitor::json_line(report));
  } else {
    spec::print("{}", monitor::view(report, monitor::seconds_since_1970() - report.now.taken));
  }
}

// Until the job ends, or whoever reads goes away.
void follow(const std::filesystem::path& folder, int64_t pid, const MonitorArguments& arguments) {
  const auto live = monitor::live_view(stdout);
  const bool lines = arguments.json || isatty(STDOUT_FILENO) == 0;
  for (double shown = 0; std::ferror(stdout) == 0;) {
    const monitor::JobNews news = monitor::read_job(folder, pid);
    if (!news.report) {
      if (news.end == monitor::JobEnd::kKilled) {
        throw Error(ErrorCode::kFailedPrecondition,
                    fmt::format("job {} was killed: its process is gone", pid));
      }
      spec::print(stderr, "tpuboard: job {} has ended\n", pid);
      return;
    }
    if (!lines) {
      live(*news.report);
    } else if (news.report->now.taken != shown) {
      shown = news.report->now.taken;
      show_once(*news.report, true);
      std::fflush(stdout);
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(arguments.interval));
  }
}

// This process becomes tpuboard-exporter: only it links the libraries of the servers.
[[noreturn]] void become_exporter(const std::filesystem::path& folder,
                                  const MonitorArguments& arguments) {
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "tpuboard-exporter";
  std::vector<std::string> words = {program.string(), "--folder", folder.string(), "--pid",
                                    std::to_string(arguments.pid)};
  if (arguments.prometheus) {
    words.insert(words.end(), {"--prometheus", std::to_string(*arguments.prometheus)});
  }
  if (arguments.tpu_info) {
    words.insert(words.end(), {"--tpu-info", std::to_string(*arguments.tpu_info)});
  }
  become_program(std::move(words), "it belongs beside tpuboard");
}

void run_monitor(const MonitorArguments& arguments) {
  const std::filesystem::path folder =
      arguments.folder.empty() ? monitor::jobs_folder() : std::filesystem::path(arguments.folder);
  if (arguments.prometheus || arguments.tpu_info) {
    become_exporter(folder, arguments);
  }
  const int64_t pid = monitor::choose_job(folder, arguments.pid);
  if (arguments.pid == 0) {
    for (const std::string& why : monitor::list_jobs(folder).unreadable) {
      spec::print(stderr, "tpuboard: {}\n", why);
    }
  }
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
      ->check(seconds_between(0.05, 86400))
      ->capture_default_str()
      ->type_name("SECONDS");
  CLI::Option* json = command->add_flag(
      "--json", arguments->json,
      "A line of JSON for each sample (default if standard output is not a terminal)");
  CLI::Option* once =
      command->add_flag("--once", arguments->once, "Show the metrics once, and exit");
  constexpr int kMostPort = 65535;
  command
      ->add_option("--prometheus", arguments->prometheus,
                   "Serve all jobs to Prometheus at http://127.0.0.1:PORT/metrics (0: any port)")
      ->check(CLI::Range(0, kMostPort))
      ->excludes(json)
      ->excludes(once)
      ->type_name("PORT");
  command
      ->add_option("--tpu-info", arguments->tpu_info,
                   "Answer tpu-info, which asks port 8431 of its host (0: any port)")
      ->check(CLI::Range(0, kMostPort))
      ->excludes(json)
      ->excludes(once)
      ->type_name("PORT");
  command
      ->add_option("--folder", arguments->folder,
                   "Where jobs publish their metrics (default: $XDG_RUNTIME_DIR/tpuboard)")
      ->type_name("DIR");
  command->callback([arguments] { run_monitor(*arguments); });
}

}  // namespace tpu::driver
