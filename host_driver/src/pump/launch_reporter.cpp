// Which core of a launch is reported, and where the line goes.
#include "src/pump/launch_reporter.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <vector>

#include "src/residency/program.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

// A debugger shows where a launch is, and its stops would count.
double interval_of(const OpenOptions& options) {
  if (!(options.progress_seconds >= 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("OpenOptions::progress_seconds: expected 0 (no progress lines) or more "
                            "seconds, found {}",
                            options.progress_seconds));
  }
  return options.sim.gdb.empty() ? options.progress_seconds : 0;
}

}  // namespace

LaunchReporter::LaunchReporter(const OpenOptions& options, size_t devices, double clock_hz)
    : launches_(interval_of(options), devices), clock_hz_(clock_hz), sink_(options.progress) {}

void LaunchReporter::report_after(LongLaunches::Time ran, const Devices& devices,
                                  Transport& transport) {
  if (!launches_.spend(ran)) {
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<ProgramPlace> places = transport.stats().places;
  launches_.note_cost(std::chrono::steady_clock::now() - begin);
  const uint64_t cycle = transport.now();
  const auto place_of = [&](const Device& device) {
    const auto at = static_cast<size_t>(device.id);
    return at < places.size() && places[at].running ? &places[at] : nullptr;
  };
  const Device* found = nullptr;
  LaunchesInTurn in_turn(devices);
  for (const Device& device : devices) {
    const auto i = static_cast<size_t>(device.id);
    const Operation* op = in_turn.at(device);
    if (op != nullptr && op->verdict) {
      op = nullptr;
    }
    const bool seen = i < places.size();
    if (!launches_.look(i, op == nullptr ? 0 : op->launch_id, seen ? places[i].steps : 0,
                        seen || op == nullptr ? 1 : op->steps, cycle)) {
      continue;
    }
    if (found == nullptr || comes_first(device, *found, place_of(*found) != nullptr)) {
      found = &device;
    }
  }
  if (found != nullptr && launches_.may_tell()) {
    report(*found, place_of(*found), cycle);
  }
}

bool LaunchReporter::comes_first(const Device& device, const Device& other, bool other_runs) const {
  const LongLaunches::Time silent = launches_.silent(static_cast<size_t>(device.id));
  const LongLaunches::Time other_silent = launches_.silent(static_cast<size_t>(other.id));
  if (silent != other_silent) {
    return silent > other_silent;
  }
  const uint64_t number = device.first_launch()->number;
  const uint64_t other_number = other.first_launch()->number;
  return number < other_number || (number == other_number && !other_runs);
}

void LaunchReporter::report(const Device& device, const ProgramPlace* place, uint64_t cycle) {
  const Operation& op = *device.first_launch();
  const LongLaunches::News news =
      launches_.tell(static_cast<size_t>(device.id),
                     place == nullptr ? std::vector<spec::LoopPlace>() : place->loops, cycle);
  const std::string text =
      long_launch_text(fmt::format("{} (id {})", op.what, op.launch_id), op.program->exe, op.steps,
                       device.id, place, news, clock_hz_);
  if (sink_) {
    sink_(text);
    return;
  }
  // The line replaces a progress bar, which is drawn again below it.
  spec::print(stderr, "{}tpuboard: {}\n", isatty(fileno(stderr)) != 0 ? "\r\x1b[K" : "",
              spec::printable_text(text));
  std::fflush(stderr);
}

}  // namespace tpu::driver
