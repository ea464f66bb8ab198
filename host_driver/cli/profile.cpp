// Table of the host's time.
#include "cli/profile.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>

namespace tpu::driver {
namespace {

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

ProfileWindow::Usage ProfileWindow::usage() {
  rusage now{};
  getrusage(RUSAGE_SELF, &now);
  return {seconds_of(now.ru_utime), seconds_of(now.ru_stime),
          static_cast<uint64_t>(now.ru_minflt + now.ru_majflt)};
}

ProfileWindow::ProfileWindow(const Board& board)
    : board_(board),
      start_(std::chrono::steady_clock::now()),
      usage_(usage()),
      work_(board.profile()) {}

void ProfileWindow::close() {
  wall_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const Usage end = usage();
  usage_ = {end.user - usage_.user, end.system - usage_.system,
            end.page_faults - usage_.page_faults};
  std::vector<HostWorkTime> now = board_.profile();
  for (size_t i = 0; i < now.size() && i < work_.size(); ++i) {
    now[i].seconds -= work_[i].seconds;
    now[i].count -= work_[i].count;
    now[i].amount -= work_[i].amount;
  }
  work_ = std::move(now);
}

const HostWorkTime& ProfileWindow::work(const std::string& name) const {
  static const HostWorkTime none;
  const auto found = std::find_if(work_.begin(), work_.end(),
                                  [&](const HostWorkTime& each) { return each.name == name; });
  return found == work_.end() ? none : *found;
}

std::vector<ProfileWindow::Line> ProfileWindow::work_lines() const {
  return {
      {"matrix units: arithmetic", seconds("mxu") - seconds("mxu_pack"), &work("mxu")},
      {"matrix units: packing", seconds("mxu_pack"), &work("mxu_pack")},
      {"vector units", seconds("vpu"), &work("vpu")},
      {"transposes", seconds("transpose"), &work("transpose")},
      {"copies HBM to VMEM (dma_in)", seconds("dma_in"), &work("dma_in")},
      {"copies VMEM to HBM (dma_out)", seconds("dma_out"), &work("dma_out")},
      {"copies to other cores (dma_remote)", seconds("dma_remote"), &work("dma_remote")},
      {"copies by an index list", seconds("dma_indexed"), &work("dma_indexed")},
      {"fills", seconds("fill"), &work("fill")},
  };
}

std::vector<ProfileWindow::Line> ProfileWindow::kernel_lines() const {
  const double known = seconds("pages") + seconds("hart") + seconds("checker") +
                       seconds("join_work") + seconds("join_wait");
  return {
      {"HBM pages found and unshared", seconds("pages"), &work("pages")},
      {"control harts", seconds("hart"), &work("hart")},
      {"checks of accesses (--check)", seconds("checker"), &work("checker")},
      {"waiting for commands of other threads", seconds("join_wait"), &work("join_wait")},
      {"events, sequencers, host transfers", seconds("board") - known, nullptr},
      {"work of the first table", seconds("join_work"), nullptr},
      {"outside of the simulation", wall_ - seconds("board"), nullptr},
  };
}

void ProfileWindow::print(double launches) const {
  if (work_.empty()) {
    return;
  }
  const auto print_lines = [&](const std::vector<Line>& lines) {
    for (const Line& line : lines) {
      if (line.seconds <= 0) {
        continue;
      }
      fmt::print("  {:<40}{:>11.2f} ms{:>7.1f} %", line.name, line.seconds / launches * 1e3,
                 line.seconds / wall_ * 100);
      if (line.work != nullptr) {
        fmt::print("{:>12.0f}", static_cast<double>(line.work->count) / launches);
      }
      if (line.work != nullptr && line.work->amount != 0) {
        fmt::print("{:>10.2f} G{}/s", static_cast<double>(line.work->amount) / line.seconds * 1e-9,
                   line.work->unit);
      }
      fmt::print("\n");
    }
  };
  fmt::print(
      "host time a launch: wall {:.2f} ms, user {:.2f} ms, system {:.2f} ms, {:.0f} page "
      "faults\n",
      wall_ / launches * 1e3, usage_.user / launches * 1e3, usage_.system / launches * 1e3,
      static_cast<double>(usage_.page_faults) / launches);
  fmt::print("data work of all threads{:>32}{:>9}{:>12}{:>16}\n", "time", "of wall", "pieces",
             "rate");
  print_lines(work_lines());
  fmt::print("the kernel thread\n");
  print_lines(kernel_lines());
  std::fflush(stdout);
}

nlohmann::ordered_json ProfileWindow::json(double launches) const {
  nlohmann::ordered_json json;
  json["wall_seconds"] = wall_ / launches;
  json["user_seconds"] = usage_.user / launches;
  json["system_seconds"] = usage_.system / launches;
  json["page_faults"] = static_cast<double>(usage_.page_faults) / launches;
  for (const HostWorkTime& each : work_) {
    json["work"][each.name] = {{"seconds", each.seconds / launches},
                               {"count", static_cast<double>(each.count) / launches},
                               {"amount", static_cast<double>(each.amount) / launches},
                               {"unit", each.unit}};
  }
  return json;
}

}  // namespace tpu::driver
