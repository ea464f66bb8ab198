// Time since a launch came to the head, and the loop that moves.
#include "src/pump/long_launches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "exe/executable.hpp"
#include "src/texts/fault_text.hpp"
#include "terminal/text_bar.hpp"
#include "tpu/spec/program_image.h"
#include "tpu/transport.hpp"

namespace tpu::driver {
namespace {

// So what takes a minute is told of a second late at most, where a look takes no longer than the
// twentieth of a second.
constexpr int kLooks = 60;
// A board in other processes, on a busy host, takes longer for an answer than a short tick has, and
// one of thousands of cores that wait for each other takes seconds. Looks take a twentieth at most.
constexpr int kRunForLooks = 20;
// Longer times are none: a century of nanoseconds still fits.
constexpr double kLongestInterval = 3e9;
constexpr uint64_t kCodeWordBytes = 8;

// The outermost loop whose iteration is another one now, inside of the same iterations as before.
std::optional<size_t> moving_loop(const std::vector<spec::LoopPlace>& then,
                                  const std::vector<spec::LoopPlace>& now) {
  for (size_t i = 0; i < std::min(then.size(), now.size()); ++i) {
    if (then[i].op_id != now[i].op_id || then[i].iteration > now[i].iteration) {
      return std::nullopt;
    }
    if (then[i].iteration < now[i].iteration) {
      return i;
    }
  }
  return std::nullopt;
}

std::string op_text(const exe::ExecutableT& program, uint32_t op_id) {
  const ErrorPlace place = op_place(program, op_id, 0);
  if (place.op.empty()) {
    return fmt::format("op {}", op_id);
  }
  return place.source.empty() ? place.op : place.op + " at " + place.source;
}

// How far in its code a program is that runs no loop.
std::string share_text(const exe::ExecutableT& program, uint32_t word) {
  tpu_program_image_header_t header{};
  if (program.image.size() < sizeof header) {
    return {};
  }
  std::memcpy(&header, program.image.data(), sizeof header);
  const uint64_t words = header.code_bytes / kCodeWordBytes;
  return words == 0
             ? std::string()
             : fmt::format(" ({} % of the code)", 100 * std::min<uint64_t>(word, words) / words);
}

std::string loops_text(const exe::ExecutableT& program, const ProgramPlace& place,
                       const LongLaunches::News& news) {
  std::string text;
  for (size_t i = 0; i < place.loops.size(); ++i) {
    const spec::LoopPlace& loop = place.loops[i];
    text += fmt::format(", iteration {} of {}", loop.iteration, op_text(program, loop.op_id));
    if (news.loop == i) {
      text += fmt::format(" ({:.{}f} iterations/s)", news.iterations_per_second,
                          news.iterations_per_second < 10 ? 1 : 0);
    }
  }
  return text;
}

}  // namespace

LongLaunches::LongLaunches(double seconds, size_t devices) : heads_(devices) {
  if (seconds > 0) {
    const std::chrono::duration<double> wanted(std::min(seconds, kLongestInterval));
    interval_ = std::max(Time(kLooks), std::chrono::duration_cast<Time>(wanted));
    tick_ = interval_ / kLooks;
  }
}

bool LongLaunches::spend(Time time) {
  if (tick_ == Time(0)) {
    return false;
  }
  running_ += time;
  spent_ += time;
  if (spent_ < tick_) {
    return false;
  }
  spent_ = Time(0);
  return true;
}

void LongLaunches::note_cost(Time look) {
  tick_ = std::max(interval_ / kLooks, kRunForLooks * look);
}

bool LongLaunches::look(size_t device, uint32_t launch_id, uint64_t steps, uint64_t unseen,
                        uint64_t cycle) {
  Head& head = heads_[device];
  if (head.launch_id != launch_id) {
    head = {.launch_id = launch_id,
            .steps = steps,
            .since = running_,
            .first = running_,
            .first_cycle = cycle,
            .told = running_,
            .told_loops = {}};
  } else if (head.steps != steps) {
    head.steps = steps;
    head.since = running_;
    head.told_loops.clear();  // iterations count from the step's begin
  }
  return launch_id != 0 && silent(device) / interval_ >= static_cast<int64_t>(unseen);
}

bool LongLaunches::may_tell() {
  if (told_ && running_ - *told_ < interval_) {
    return false;
  }
  told_ = running_;
  return true;
}

LongLaunches::News LongLaunches::tell(size_t device, const std::vector<spec::LoopPlace>& loops,
                                      uint64_t cycle) {
  using Seconds = std::chrono::duration<double>;
  Head& head = heads_[device];
  News news{.host_seconds = Seconds(running_ - head.first).count(),
            .cycles = cycle - head.first_cycle,
            .loop = moving_loop(head.told_loops, loops)};
  if (news.loop) {
    const uint64_t done = loops[*news.loop].iteration - head.told_loops[*news.loop].iteration;
    news.iterations_per_second = static_cast<double>(done) / Seconds(running_ - head.told).count();
  }
  head.told = running_;
  head.told_loops = loops;
  for (Head& each : heads_) {
    if (each.launch_id == head.launch_id) {
      each.since = running_;
    }
  }
  return news;
}

std::string long_launch_text(const std::string& launch, const exe::ExecutableT& program,
                             uint32_t steps, int device, const ProgramPlace* place,
                             const LongLaunches::News& news, double clock_hz) {
  std::string text =
      fmt::format("{} has run for {}", launch, spec::duration_text(news.host_seconds));
  text +=
      fmt::format(" ({:.6g} s of simulated time): ", static_cast<double>(news.cycles) / clock_hz);
  if (place == nullptr) {
    return text + "no core has begun it";
  }
  if (steps > 1) {
    text += fmt::format("step {} of {}, ", place->step + 1, steps);
  }
  text += fmt::format("TPU:{} is at {}", device, op_text(program, place->op_id));
  text += place->loops.empty() ? share_text(program, place->pc) : loops_text(program, *place, news);
  return text;
}

}  // namespace tpu::driver
