// Figures of a board: time, counters, use of memory. Looks change nothing; counters() waits.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "src/board/board_impl.hpp"
#include "tpu/spec/perf_regs.hpp"

namespace tpu::driver {
namespace {

// `all`: in the order of spec/regs/perf.toml; empty: not known.
CoreCounters core_counters(std::vector<uint64_t> all, const TransportStats& stats, size_t device) {
  namespace perf = spec::perf;
  CoreCounters core;
  if (!all.empty()) {
    core.cycles = all[perf::kCycles];
    core.run_cycles = all[perf::kRunCycles];
    core.idle_cycles = all[perf::kIdleCycles];
    core.commands = all[perf::kCommands];
    core.instructions = all[perf::kInstructions];
    core.mxu_flops = all[perf::kMxuFlops];
  }
  core.all = std::move(all);
  core.hart_instructions =
      device < stats.hart_instructions.size() ? stats.hart_instructions[device] : 0;
  core.times = device < stats.times.size() ? stats.times[device] : CoreTimes();
  return core;
}

}  // namespace

uint64_t BoardImpl::now() {
  const Entry entry(*this, EntryKind::kLook);
  health_.check_usable();
  return transport_->now();
}

std::vector<uint64_t> BoardImpl::hart_instructions() {
  const Entry entry(*this, EntryKind::kLook);
  health_.check_usable();
  return transport_->stats().hart_instructions;
}

std::vector<uint64_t> BoardImpl::run_cycles() {
  const Entry entry(*this, EntryKind::kLook);
  health_.check_usable();
  return transport_->stats().run_cycles;
}

std::vector<HostWorkTime> BoardImpl::profile() {
  const Entry entry(*this, EntryKind::kLook);
  health_.check_usable();
  return transport_->stats().profile;
}

std::vector<ThreadForecast> BoardImpl::thread_forecast(const std::vector<int>& threads) {
  const Entry entry(*this, EntryKind::kLook);
  health_.check_usable();
  return transport_->thread_forecast(threads);
}

std::vector<DeviceInfo> BoardImpl::device_infos() {
  std::vector<DeviceInfo> infos;
  for (const Device& device : devices_) {
    DeviceInfo info;
    info.id = device.id;
    info.chip = device.chip;
    info.core = device.core;
    info.x = static_cast<int>(device.chip % params_.board.torus_x);
    info.y = static_cast<int>(device.chip / params_.board.torus_x);
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

BoardCounters BoardImpl::counters() {
  namespace perf = spec::perf;
  const Entry entry(*this);
  health_.check_usable();
  const auto more_mxus = static_cast<uint32_t>(std::max<int64_t>(params_.core.mxus, 2) - 2);
  constexpr uint32_t kMostCounters = perf::kMxu2BusyCycles;  // of one command
  const uint32_t counters = kMostCounters + 2 * more_mxus;   // that a core has
  const uint64_t bytes = counters * sizeof(uint64_t);
  std::vector<std::shared_ptr<StagingRange>> staged;
  std::vector<std::shared_ptr<Operation>> ops;
  for (const Device& device : devices_) {
    staged.push_back(memory_.stage(bytes));
    ops.push_back(operations_.begin(fmt::format("reading counters of TPU:{}", device.id)));
    for (uint32_t first = 0; first < counters; first += kMostCounters) {
      auto command = std::make_shared<Command>();
      command->device = device.id;
      command->keep = {staged.back()};
      tpu_command_read_counters_t read{};
      read.iova = staged.back()->iova() + first * sizeof(uint64_t);
      read.bytes = std::min(counters - first, kMostCounters) * sizeof(uint64_t);
      read.first = first;
      set_payload(*command, TPU_OP_READ_COUNTERS, TPU_TRACK_LAUNCH, read);
      operations_.add(ops.back(), command);
    }
    operations_.seal(ops.back());
  }
  run_until_idle(std::nullopt, ops.back()->number);  // not for what others go on submitting
  health_.check_unbroken();
  std::vector<CoreCounters> cores;
  const TransportStats stats = transport_->stats();
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i]->event->error) {
      throw Error(*ops[i]->event->error);
    }
    std::vector<uint64_t> all(counters);
    std::memcpy(all.data(), staged[i]->bytes().data(), bytes);
    cores.push_back(core_counters(std::move(all), stats, i));
  }
  return board_counters(std::move(cores), stats);
}

BoardCounters BoardImpl::peek() {
  const Entry entry(*this, EntryKind::kLook);
  if (health_.closed() || health_.broken()) {
    throw Error(ErrorCode::kFailedPrecondition,
                health_.closed() ? "the board is closed" : "the board is broken");
  }
  TransportStats stats = transport_->stats();
  std::vector<CoreCounters> cores;
  for (size_t i = 0; i < devices_.size(); ++i) {
    std::vector<uint64_t> all =
        i < stats.counters.size() ? std::move(stats.counters[i]) : std::vector<uint64_t>();
    cores.push_back(core_counters(std::move(all), stats, i));
  }
  return board_counters(std::move(cores), stats);
}

BoardCounters BoardImpl::board_counters(std::vector<CoreCounters> cores,
                                        const TransportStats& stats) {
  BoardCounters result;
  result.now_cycles = transport_->now();
  result.cores = std::move(cores);
  result.lockstep_tiles = stats.lockstep_tiles;
  result.lockstep_semaphores = stats.lockstep_semaphores;
  result.lockstep_transfers = stats.lockstep_transfers;
  result.lockstep_mismatches = stats.lockstep_mismatches;
  result.lockstep_text = stats.lockstep_text;
  result.check_findings = stats.check_findings;
  result.check_text = records_.check_text();
  result.late_calls = turn_.late_calls();
  result.repeated_doorbells = recovery_.repeated_doorbells();
  result.recoveries = recovery_.recoveries();
  return result;
}

}  // namespace tpu::driver
