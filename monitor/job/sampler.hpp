// Sampler: the part of the monitor inside a job. A thread looks at the board about once a second,
// through the debug port, so that no cycle of the board changes, and publishes what it sees.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "job/jobs.hpp"
#include "job/snapshot.hpp"
#include "tpu/board.hpp"

namespace tpu::monitor {

struct SamplerOptions {
  std::string command;                           ///< what the job is: "tpuboard train c.toml"
  std::filesystem::path folder = jobs_folder();  ///< where it publishes
  std::chrono::milliseconds every{1000};         ///< between two looks
  std::function<void(const Report&)> show;       ///< called with each, by the sampler's thread
};

/// A job never fails or waits because it cannot be monitored: where the folder cannot be written,
/// that is said on standard error once, and nothing is published.
class Sampler {
 public:
  Sampler(const driver::Board& board, SamplerOptions options);
  ~Sampler() { stop(); }
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  /// Any thread.
  void progress(const Progress& at);
  /// The last look, shown but not published; the job is no longer seen. Not by two threads.
  void stop();

 private:
  void run();
  bool look();
  void publish(const Report& report);
  void stop_publishing(const std::string& why);
  Snapshot take() const;

  driver::Board board_;
  SamplerOptions options_;
  Snapshot job_;  // what stays the same
  std::optional<JobFile> file_;
  std::deque<Snapshot> past_;  // of the last seconds
  std::optional<Figures> figures_;
  mutable std::mutex mutex_;
  std::condition_variable stopping_;
  bool stop_ = false;
  std::optional<Progress> progress_;
  std::thread thread_;
};

}  // namespace tpu::monitor
