// Counter tracks of a core.
#include "timeline/core_counters.hpp"

#include <algorithm>
#include <string>

#include "command/bandwidth_share.hpp"

namespace tpu::model {
namespace {

constexpr double kPercent = 100.0;

}  // namespace

CoreCounterTracks::CoreCounterTracks(PerfettoFile& file, PerfettoFile::Track core, int rank,
                                     const Numbers& numbers)
    : file_(file), numbers_(numbers), queued_(spec::kQueueCount), units_(spec::kQueueCount) {
  const auto counter = [&](const std::string& name, const char* unit) {
    return CounterTrack(file.add_counter(core, name, rank++, unit));
  };
  hbm_read_.track = counter("HBM read", "MB/s");
  hbm_write_.track = counter("HBM written", "MB/s");
  sent_.track = counter("sent to other cores", "MB/s");
  for (size_t queue = 0; queue < spec::kQueueCount; ++queue) {
    const spec::QueueInfo& info = spec::kQueues[queue];
    const bool mxu = info.engine == spec::Engine::kMxu;
    if (mxu && info.unit >= numbers.mxus) {
      continue;
    }
    const std::string name(spec::kQueueNames[queue]);
    if (mxu) {
      units_[queue].use = counter(name + " use", "%");
    }
    queued_[queue] = counter(name + " queued", "commands");
  }
}

// The unit takes its work until `free_at`; then its next matmul, or nothing.
void CoreCounterTracks::matmul(const StartEvent& event) {
  Unit& unit = units_[event.source.unit];
  if (unit.free_at != 0 && event.cycle > unit.free_at) {
    unit.use.set(file_, unit.free_at, 0);
  }
  const uint64_t most = numbers_.mxu_flops * std::max<uint64_t>(1, event.free_at - event.cycle);
  unit.use.set(file_, event.cycle,
               kPercent * static_cast<double>(event.flops) / static_cast<double>(most));
  unit.free_at = event.free_at;
}

void CoreCounterTracks::add(Rate& rate, uint64_t cycle, uint64_t change) {
  rate.value += change;
  rate.track.set(file_, cycle,
                 static_cast<double>(rate.value) * static_cast<double>(numbers_.clock_mhz) /
                     (uint64_t{1} << spec::BandwidthShare::kFraction));
}

void CoreCounterTracks::idle(uint64_t cycle) {
  for (CounterTrack& each : queued_) {
    each.set(file_, cycle, 0);
  }
  for (Unit& unit : units_) {
    if (unit.free_at != 0) {
      unit.use.set(file_, std::min(unit.free_at, cycle), 0);
      unit.free_at = 0;
    }
    unit.use.set(file_, cycle, 0);
  }
  for (Rate* rate : {&hbm_read_, &hbm_write_, &sent_}) {
    rate->value = 0;
    rate->track.set(file_, cycle, 0);
  }
}

void CoreCounterTracks::flush() {
  for (CounterTrack& each : queued_) {
    each.flush(file_);
  }
  for (Unit& unit : units_) {
    unit.use.flush(file_);
  }
  for (Rate* rate : {&hbm_read_, &hbm_write_, &sent_}) {
    rate->track.flush(file_);
  }
}

}  // namespace tpu::model
