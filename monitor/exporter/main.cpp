// tpuboard-exporter: serves the figures of jobs to Prometheus and to tpu-info. `tpuboard monitor`
// becomes this program when it is to serve: so the libraries for it are linked nowhere else.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "exporter/servers.hpp"
#include "job/jobs.hpp"
#include "terminal/printable_text.hpp"

namespace tpu::monitor {
namespace {

int run_exporter(int argc, const char* const* argv) {
  CLI::App app("Serves the metrics of running jobs", "tpuboard-exporter");
  std::string folder = jobs_folder().string();
  int64_t pid = 0;
  std::optional<int> prometheus;
  std::optional<int> tpu_info;
  constexpr int kMostPort = 65535;
  app.add_option("--folder", folder);
  app.add_option("--pid", pid);
  app.add_option("--prometheus", prometheus)->check(CLI::Range(0, kMostPort));
  app.add_option("--tpu-info", tpu_info)->check(CLI::Range(0, kMostPort));
  CLI11_PARSE(app, argc, argv);
  std::vector<std::unique_ptr<Server>> servers;
  if (prometheus) {
    servers.push_back(make_metrics_server(folder, pid, *prometheus));
    spec::print("metrics: http://127.0.0.1:{}/metrics\n", servers.back()->port());
  }
  if (tpu_info) {
    servers.push_back(make_tpu_info_server(folder, pid, *tpu_info));
    spec::print("tpu-info: localhost:{}\n", servers.back()->port());
  }
  std::fflush(stdout);
  std::vector<std::thread> threads;
  for (const auto& server : servers) {
    threads.emplace_back([&] { server->serve(); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return 0;
}

}  // namespace
}  // namespace tpu::monitor

int main(int argc, char** argv) {
  // What goes wrong is told by our own errors.
  setenv("GRPC_VERBOSITY", "NONE", 0);
  try {
    return tpu::monitor::run_exporter(argc, argv);
  } catch (const std::exception& error) {
    tpu::spec::print(stderr, "tpuboard: {}\n", error.what());
    return 1;
  }
}
