// What the board is and counts, and how its calls wait.
#include "board/board_loader.hpp"
#include "src/board/board_impl.hpp"

namespace tpu::driver {

void BoardImpl::settle(uint64_t last) {
  waits_.run_until_idle(std::nullopt, last);
  health_.check_unbroken();
}

void BoardImpl::add_counters(BoardCounters& counters) const {
  counters.check_text = records_.check_text();
  counters.late_calls = turn_.late_calls();
  counters.repeated_doorbells = recovery_.repeated_doorbells();
  counters.recoveries = recovery_.recoveries();
  for (const Device& device : devices_) {
    counters.retired_hbm_bytes += device.memory->retired();
  }
}

void BoardImpl::prepare_input(uint64_t bytes) {
  pump_.prepare_input(spec::host_input_cycles(params_, bytes));
}

std::vector<DeviceInfo> BoardImpl::device_infos() {
  std::vector<DeviceInfo> infos;
  for (const Device& device : devices_) {
    DeviceInfo info;
    info.id = device.id;
    info.chip = device.chip;
    info.core = device.core;
    info.x = static_cast<int>(device.chip % spec::chips_x(params_));
    info.y = static_cast<int>(device.chip / spec::chips_x(params_));
    info.hbm_bytes = static_cast<uint64_t>(params_.hbm.gib_per_core) << 30;
    const MemoryUse use = device.memory->use();
    info.hbm_used = use.used;
    info.hbm_peak = use.peak;
    info.hbm_largest_free = use.largest_free;
    info.hbm_limit = device.memory->capacity();
    info.hbm_ranges = use.ranges;
    info.hbm_ranges_ever = use.ranges_ever;
    info.hbm_largest_ever = use.largest_ever;
    infos.push_back(info);
  }
  return infos;
}

}  // namespace tpu::driver
