// Figures are those of the last seconds, so that steps of a second and less do not make them jump.
#include "job/sampler.hpp"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <utility>

#include "tpu/error.hpp"
#include "tpu/spec/perf_regs.hpp"

namespace tpu::monitor {
namespace {

constexpr double kWindowSeconds = 5;

// Signals are for the threads of the job.
std::thread start_without_signals(const std::function<void()>& body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread thread(body);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return {};  // a host without room for a thread; the job goes on without a monitor
  }
}

CoreSnapshot core_snapshot(const driver::CoreCounters& counters, const driver::DeviceInfo& device) {
  namespace perf = spec::perf;
  CoreSnapshot core;
  core.chip = device.chip;
  if (!counters.all.empty()) {
    core.programs = counters.all[perf::kPrograms];
    core.hbm_read_bytes = counters.all[perf::kHbmReadBytes];
    core.hbm_written_bytes = counters.all[perf::kHbmWriteBytes];
    core.link_sent_bytes = counters.all[perf::kIciSentBytes];
    core.link_received_bytes = counters.all[perf::kIciReceivedBytes];
  }
  core.mxu_flops = counters.mxu_flops;
  core.hbm_used = device.hbm_used;
  core.hbm_bytes = device.hbm_bytes;
  core.times = counters.times;
  return core;
}

}  // namespace

Sampler::Sampler(const driver::Board& board, SamplerOptions options)
    : board_(board), options_(std::move(options)) {
  job_.pid = getpid();
  job_.process_start = process_start(job_.pid).value_or(0);
  job_.command = options_.command;
  job_.board = board_.name();
  job_.clock_hz = board_.clock_hz();
  job_.peak_flops_per_cycle = board_.peak_flops_per_cycle();
  job_.started = seconds_since_1970();
  try {
    file_.emplace(options_.folder);
  } catch (const driver::Error& error) {
    stop_publishing(error.message());
  }
  if (file_ || options_.show) {
    thread_ = start_without_signals([this] { run(); });
  }
}

void Sampler::progress(const Progress& at) {
  const std::lock_guard lock(mutex_);
  progress_ = at;
}

void Sampler::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopping_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
    if (options_.show) {
      file_.reset();
      look();
    }
  }
  file_.reset();
  board_ = {};
}

void Sampler::run() {
  pthread_setname_np(pthread_self(), "monitor");  // in top -H, gdb and /proc/PID/task
  while (look()) {
    std::unique_lock lock(mutex_);
    if (stopping_.wait_for(lock, options_.every, [this] { return stop_; })) {
      return;
    }
  }
}

// False: there is nothing to see any more.
bool Sampler::look() {
  try {
    Report report{take(), {}};
    while (past_.size() > 1 && report.now.taken - past_[1].taken > kWindowSeconds) {
      past_.pop_front();
    }
    // The first look has no past: then it is of the whole run. While no simulated time passes, the
    // figures stay those of when it did.
    report.lately = figures(past_.empty() ? job_ : past_.front(), report.now);
    if (report.lately.board_seconds == 0 && figures_) {
      report.lately.mxu = figures_->mxu;
      report.lately.time = figures_->time;
      report.lately.cores = figures_->cores;
    }
    figures_ = report.lately;
    past_.push_back(report.now);
    if (options_.show) {
      options_.show(report);
    }
    publish(report);
    return true;
  } catch (const std::exception&) {
    return false;  // the board is closed or broke: whoever works there says so
  }
}

void Sampler::publish(const Report& report) {
  if (!file_) {
    return;
  }
  try {
    file_->write(report);
  } catch (const driver::Error& error) {
    stop_publishing(error.message());
  }
}

void Sampler::stop_publishing(const std::string& why) {
  std::fprintf(stderr, "tpuboard: %s; tpuboard monitor will not see this job\n", why.c_str());
  file_.reset();
}

Snapshot Sampler::take() const {
  Snapshot shot = job_;
  const driver::BoardCounters counters = board_.peek();
  const std::vector<driver::DeviceInfo> devices = board_.devices();
  shot.taken = seconds_since_1970();
  shot.cycles = counters.now_cycles;
  shot.faults = counters.faults;
  for (size_t i = 0; i < devices.size() && i < counters.cores.size(); ++i) {
    shot.cores.push_back(core_snapshot(counters.cores[i], devices[i]));
  }
  const std::lock_guard lock(mutex_);
  shot.progress = progress_;
  return shot;
}

}  // namespace tpu::monitor
