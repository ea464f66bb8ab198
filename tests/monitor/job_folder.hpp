// A folder in which jobs tell of themselves, jobs as processes of their own, and what one tells.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <string>

#include "job/jobs.hpp"
#include "tpu/error.hpp"

namespace tpu::monitor {

inline Snapshot snapshot_of_two_cores() {
  Snapshot shot;
  shot.pid = getpid();
  shot.process_start = process_start(getpid()).value();
  shot.command = "tpuboard train c.toml";
  shot.board = "v3_8";
  shot.clock_hz = 1000;
  shot.peak_flops_per_cycle = 10;
  shot.started = shot.taken = 100;
  shot.cores.resize(2);
  return shot;
}

// Between two moments: 1,000 cycles, in which core 0 has worked and core 1 has never had a program.
inline Report some_report() {
  const Snapshot from = snapshot_of_two_cores();
  Report report{from, {}};
  report.now.taken = 102;
  report.now.cycles = 1000;
  CoreSnapshot& core = report.now.cores[0];
  core.programs = 3;
  core.mxu_flops = 2500;
  core.hbm_read_bytes = 3'000'000'000;
  core.hbm_written_bytes = 1'000'000'000;
  core.link_sent_bytes = 500'000'000;
  core.times = {400, 200, 100, 50, 150, 100};
  report.now.cores[1].times = {0, 0, 0, 0, 0, 1000};
  report.now.progress = Progress{40, 100, 2, 0.25, {{"accuracy", 0.5}}};
  report.lately = figures(from, report.now);
  return report;
}

class MonitorJobs : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("tpu_monitor_test" + std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string choice_error(int64_t pid) const {
    try {
      choose_job(folder_, pid);
    } catch (const driver::Error& error) {
      return error.message();
    }
    return "none";
  }

  // A process that publishes and then waits until it is killed.
  pid_t start_job() const {
    std::array<int, 2> ready{};
    EXPECT_EQ(pipe(ready.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
      const JobFile file(folder_);
      Report report = some_report();
      report.now.pid = getpid();
      report.now.process_start = process_start(getpid()).value();
      file.write(report);
      [[maybe_unused]] const ssize_t told = ::write(ready[1], "x", 1);
      for (;;) {
        pause();
      }
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return child;
  }
  std::filesystem::path file_of(int64_t pid) const {
    return folder_ / (std::to_string(pid) + ".json");
  }
  static void make_old(const std::filesystem::path& file) {
    std::filesystem::last_write_time(
        file, std::filesystem::file_time_type::clock::now() - std::chrono::minutes(2));
  }
  static void end_job(pid_t job) {
    kill(job, SIGKILL);
    waitpid(job, nullptr, 0);
  }

  std::filesystem::path folder_;
};

}  // namespace tpu::monitor
