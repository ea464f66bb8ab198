// Table of the host's time.
#include "cli/profile.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>

#include "terminal/printable_text.hpp"

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

ProfileWindow::ProfileWindow(const Board& board, std::optional<HostLimits> limits)
    : board_(board),
      limits_(limits),
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
    now[i].bytes -= work_[i].bytes;
  }
  work_ = std::move(now);
  forecast_ = board_.thread_forecast({1, 2, 4, 8, 16});
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
  const double known = seconds("pages") + seconds("hart") + seconds("checker") + seconds("launch") +
                       seconds("join_work") + seconds("join_wait") + seconds("wire_wait");
  return {
      {"HBM pages found and unshared", seconds("pages"), &work("pages")},
      {"control harts", seconds("hart"), &work("hart")},
      {"checks of accesses (--check)", seconds("checker"), &work("checker")},
      {"handing commands to other threads", seconds("launch"), &work("launch")},
      {"waiting for commands of other threads", seconds("join_wait"), &work("join_wait")},
      {"waiting for other processes of a pod", seconds("wire_wait"), &work("wire_wait")},
      {"events, sequencers, host transfers", seconds("board") - known, nullptr},
      {"work of the first table", seconds("join_work"), nullptr},
      {"outside of the simulation", wall_ - seconds("board"), nullptr},
  };
}

// The nearest of the limits that hold for the kind of work.
std::optional<ProfileWindow::Nearness> ProfileWindow::nearness(const Line& line) const {
  const bool found = line.work == &work("pages");  // and not copied
  if (!limits_ || line.work == nullptr || found || line.seconds <= 0 || line.work->amount == 0) {
    return std::nullopt;
  }
  std::optional<Nearness> nearest;
  const auto consider = [&](double rate, double limit, const char* name) {
    if (limit > 0 && (!nearest || rate / limit > nearest->share)) {
      nearest = {rate / limit, name};
    }
  };
  if (line.work->unit == "B") {
    consider(line.per_second(), limits_->copy_bytes_per_second, "copies");
  } else if (line.work->unit == "flop") {
    if (limits_->amx_flops > 0) {
      consider(line.per_second(), limits_->amx_flops, "AMX");
    } else if (limits_->bf16_flops > 0) {
      consider(line.per_second(), limits_->bf16_flops, "BF16");
    } else {
      consider(line.per_second(), limits_->fma_flops, "FMA");
    }
  } else if (line.work->unit == "op") {
    consider(line.per_second(), limits_->fma_flops / 2, "FMA");
    consider(line.bytes_per_second(), 2 * limits_->cached_copy_bytes_per_second, "cached copies");
  }
  return nearest;
}

void ProfileWindow::print_left_out(const std::string& kind, std::string_view text,
                                   double launches) const {
  if (const HostWorkTime& left_out = work(kind); left_out.count != 0) {
    spec::print("  {:<38}{:>32.0f}{:>11.3f} GB\n", text,
                static_cast<double>(left_out.count) / launches,
                static_cast<double>(left_out.amount) / launches * 1e-9);
  }
}

void ProfileWindow::print_lines(const std::vector<Line>& lines, double launches) const {
  for (const Line& line : lines) {
    if (line.seconds <= 0) {
      continue;
    }
    spec::print("  {:<38}{:>11.2f} ms{:>7.1f} %", line.name, line.seconds / launches * 1e3,
                line.seconds / wall_ * 100);
    if (line.work != nullptr) {
      spec::print("{:>10.0f}", static_cast<double>(line.work->count) / launches);
    }
    if (line.work != nullptr && line.work->amount != 0) {
      const std::string& unit = line.work->unit;
      spec::print("{:>11.3f} {:<5}{:>10.2f} {:<7}",
                  static_cast<double>(line.work->amount) / launches * 1e-9, "G" + unit,
                  line.per_second() * 1e-9, "G" + unit + "/s");
      spec::print("{:>7}", line.work->bytes == 0
                               ? std::string()
                               : fmt::format("{:.2f}", line.bytes_per_second() * 1e-9));
    }
    if (const std::optional<Nearness> near = nearness(line)) {
      spec::print("{:>6.0f} % of {}", near->share * 100, near->limit);
    }
    spec::print("\n");
  }
}

void ProfileWindow::print_limits() const {
  const auto rate = [](double value, const char* unit) {
    return value > 0 ? fmt::format("{:.1f} {}", value * 1e-9, unit) : std::string("-");
  };
  spec::print("this host, one thread: copies {}, cached copies {}, FMA {}, BF16 {}, AMX {}\n",
              rate(limits_->copy_bytes_per_second, "GB/s"),
              rate(limits_->cached_copy_bytes_per_second, "GB/s"),
              rate(limits_->fma_flops, "Gflop/s"), rate(limits_->bf16_flops, "Gflop/s"),
              rate(limits_->amx_flops, "Gflop/s"));
}

void ProfileWindow::print_forecast() const {
  if (forecast_.empty() || forecast_.front().seconds <= 0) {
    return;
  }
  const double one = forecast_.front().seconds;
  spec::print("other numbers of threads, by the pieces of the latest {:.2f} s of work\n", one);
  spec::print("  threads    speed-up    events    waiting    late\n");
  for (const ThreadForecast& each : forecast_) {
    spec::print("  {:>7}{:>10.2f} x{:>8.1f} %{:>9.1f} %{:>6.1f} %\n", each.threads,
                one / each.seconds, each.events_seconds / each.seconds * 100,
                each.wait_seconds / each.seconds * 100, each.late_seconds / each.seconds * 100);
  }
}

void ProfileWindow::print(double launches) const {
  if (work_.empty()) {
    return;
  }
  spec::print(
      "wall-clock time a launch: wall {:.2f} ms, user {:.2f} ms, system {:.2f} ms, {:.0f} page "
      "faults\n",
      wall_ / launches * 1e3, usage_.user / launches * 1e3, usage_.system / launches * 1e3,
      static_cast<double>(usage_.page_faults) / launches);
  spec::print("data work of all threads{:>30}{:>9}{:>10}{:>11}{:>16}{:>14}{}\n", "time", "of wall",
              "pieces", "amount", "rate", "GB/s", limits_ ? "  of the host's limit" : "");
  print_lines(work_lines(), launches);
  print_left_out("mxu_again", "packing that was done twice", launches);
  print_left_out("mxu_shared", "packing that was left out", launches);
  print_left_out("deferred", "copies HBM to VMEM that were left out", launches);
  print_left_out("shared", "HBM pages shared across cores", launches);
  spec::print("the kernel thread\n");
  print_lines(kernel_lines(), launches);
  if (limits_) {
    print_limits();
  }
  print_forecast();
  std::fflush(stdout);
}

nlohmann::ordered_json ProfileWindow::work_json(const Line& line, double launches) const {
  const HostWorkTime& work = *line.work;
  nlohmann::ordered_json json = {{"seconds", work.seconds / launches},
                                 {"count", static_cast<double>(work.count) / launches},
                                 {"amount", static_cast<double>(work.amount) / launches},
                                 {"unit", work.unit},
                                 {"bytes", static_cast<double>(work.bytes) / launches}};
  if (line.seconds > 0 && work.amount != 0) {
    json["amount_per_second"] = line.per_second();
  }
  if (const std::optional<Nearness> near = nearness(line)) {
    json["of_limit"] = near->share;
    json["limit"] = near->limit;
  }
  return json;
}

nlohmann::ordered_json ProfileWindow::json(double launches) const {
  nlohmann::ordered_json json;
  json["wall_seconds"] = wall_ / launches;
  json["user_seconds"] = usage_.user / launches;
  json["system_seconds"] = usage_.system / launches;
  json["page_faults"] = static_cast<double>(usage_.page_faults) / launches;
  const std::vector<Line> shown = work_lines();
  for (const HostWorkTime& each : work_) {
    const auto line =
        std::find_if(shown.begin(), shown.end(), [&](const Line& of) { return of.work == &each; });
    json["work"][each.name] =
        work_json(line == shown.end() ? Line{"", each.seconds, &each} : *line, launches);
  }
  if (limits_) {
    json["host_limits"] = limits_->json();
  }
  for (const ThreadForecast& each : forecast_) {
    json["threads"].push_back({{"threads", each.threads},
                               {"seconds", each.seconds},
                               {"events_seconds", each.events_seconds},
                               {"wait_seconds", each.wait_seconds},
                               {"late_seconds", each.late_seconds}});
  }
  return json;
}

}  // namespace tpu::driver
