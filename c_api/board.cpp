// The board of the process: what it is, its clock, its counters.
#include <algorithm>
#include <array>

#include "handles.hpp"
#include "process_board.hpp"
#include "tpu/counters.hpp"

namespace tpu::c_api {
namespace {

// Counters behind those of the register block: where the time of a core goes.
struct NamedTime {
  const char* name;
  uint64_t driver::CoreTimes::*time;
};
constexpr std::array<NamedTime, 6> kTimes = {{{"time_compute", &driver::CoreTimes::compute},
                                              {"time_links", &driver::CoreTimes::links},
                                              {"time_hbm", &driver::CoreTimes::hbm},
                                              {"time_stalled", &driver::CoreTimes::stalled},
                                              {"time_input", &driver::CoreTimes::input},
                                              {"time_host", &driver::CoreTimes::host}}};

size_t counter_count() { return driver::counter_names().size() + kTimes.size(); }

const driver::Board& board() { return client::ProcessBoard::get().board(); }

tpu_board_info info_of(const driver::Board& from) {
  tpu_board_info info{};
  info.name = from.name().c_str();
  info.device_count = static_cast<uint32_t>(from.devices().size());
  info.counter_count = static_cast<uint32_t>(counter_count());
  info.clock_hz = from.clock_hz();
  info.peak_flops_per_cycle = from.peak_flops_per_cycle();
  return info;
}

tpu_device_info info_of(const driver::DeviceInfo& device) {
  tpu_device_info info{};
  info.chip = device.chip;
  info.core = device.core;
  info.x = device.x;
  info.y = device.y;
  info.hbm_bytes = device.hbm_bytes;
  info.hbm_used = device.hbm_used;
  info.hbm_peak = device.hbm_peak;
  info.hbm_free_part = device.hbm_largest_free;
  return info;
}

void give_counters(const driver::BoardCounters& counters, uint64_t* values, size_t capacity) {
  const size_t wanted = counters.cores.size() * counter_count();
  if (capacity < wanted) {
    refuse("`values` has " + std::to_string(capacity) +
           " elements, but the number of counters is " + std::to_string(wanted));
  }
  std::fill_n(&need(values, "values"), wanted, uint64_t{0});
  for (size_t device = 0; device < counters.cores.size(); ++device) {
    const driver::CoreCounters& core = counters.cores[device];
    const size_t registers = driver::counter_names().size();
    uint64_t* const of_core = values + device * counter_count();
    std::copy_n(core.all.begin(), std::min(core.all.size(), registers), of_core);
    std::ranges::transform(kTimes, of_core + registers,
                           [&](const NamedTime& each) { return core.times.*each.time; });
  }
}

}  // namespace
}  // namespace tpu::c_api

using namespace tpu::c_api;  // NOLINT: the calls are its only users

tpu_status tpu_board_open(void) {
  return guarded([] { board(); });
}

int tpu_board_is_open(void) { return tpu::client::ProcessBoard::is_open() ? 1 : 0; }

tpu_status tpu_get_board_info(tpu_board_info* info) {
  return guarded([&] { give(info, info_of(board()), "info"); });
}

tpu_status tpu_get_device_info(int32_t device, tpu_device_info* info) {
  return guarded([&] {
    const auto devices = board().devices();
    if (device < 0 || static_cast<size_t>(device) >= devices.size()) {
      refuse("there is no device " + std::to_string(device) + "; the board has 0 to " +
             std::to_string(devices.size() - 1));
    }
    give(info, info_of(devices[static_cast<size_t>(device)]), "info");
  });
}

tpu_status tpu_board_now(uint64_t* cycles) {
  return guarded([&] { need(cycles, "cycles") = board().now(); });
}

tpu_status tpu_board_synchronize(int64_t timeout_ns) {
  return guarded([&] {
    if (timeout_ns < 0) {
      board().synchronize();
    } else {
      board().synchronize_for(std::chrono::nanoseconds(timeout_ns));
    }
  });
}

const char* tpu_counter_name(uint32_t counter) {
  const auto names = tpu::driver::counter_names();
  if (counter < names.size()) {
    return names[counter].data();
  }
  return counter < counter_count() ? kTimes.at(counter - names.size()).name : nullptr;
}

tpu_status tpu_board_counters(uint64_t* values, size_t capacity, uint64_t* cycles,
                              tpu_checks* checks) {
  return guarded([&] {
    const tpu::driver::BoardCounters counters = board().counters();
    if (checks != nullptr) {
      tpu_checks found{};
      found.lockstep_tiles = counters.lockstep_tiles;
      found.lockstep_mismatches = counters.lockstep_mismatches;
      found.check_findings = counters.check_findings;
      found.lockstep_semaphores = counters.lockstep_semaphores;
      found.lockstep_transfers = counters.lockstep_transfers;
      give(checks, found, "checks");
    }
    give_counters(counters, values, capacity);
    if (cycles != nullptr) {
      *cycles = counters.now_cycles;
    }
  });
}
