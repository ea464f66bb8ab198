// Counters in the order of spec/regs/perf.toml.
#include "src/facets/counter_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tpu/spec/perf_regs.hpp"

namespace tpu::driver {
namespace {

constexpr uint32_t kMostCounters = spec::perf::kMxu2BusyCycles;  // of one command

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

// Reads `counters` of a core, a command for as many as one takes.
std::shared_ptr<Operation> CounterReader::ask(const Device& device,
                                              const std::shared_ptr<StagingRange>& staged,
                                              uint32_t counters) {
  auto op = operations_.begin(fmt::format("reading counters of TPU:{}", device.id));
  for (uint32_t first = 0; first < counters; first += kMostCounters) {
    auto command = std::make_shared<Command>();
    command->device = device.id;
    command->keep = {staged};
    tpu_command_read_counters_t read{};
    read.iova = staged->iova() + first * sizeof(uint64_t);
    read.bytes = std::min(counters - first, kMostCounters) * sizeof(uint64_t);
    read.first = first;
    set_payload(*command, TPU_OP_READ_COUNTERS, TPU_TRACK_LAUNCH, read);
    operations_.add(op, command);
  }
  operations_.seal(op);
  return op;
}

BoardCounters CounterReader::counters() {
  const Door::Entry entry(door_);
  health_.check_usable();
  const auto more_mxus = static_cast<uint32_t>(std::max<int64_t>(mxus_, 2) - 2);
  const uint32_t counters = kMostCounters + 2 * more_mxus;  // that a core has
  const uint64_t bytes = counters * sizeof(uint64_t);
  std::vector<std::shared_ptr<StagingRange>> staged;
  std::vector<std::shared_ptr<Operation>> ops;
  for (const Device& device : devices_) {
    staged.push_back(memory_.stage(bytes));
    ops.push_back(ask(device, staged.back(), counters));
  }
  hooks_.settle(ops.back()->number);  // not for what others go on submitting
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

BoardCounters CounterReader::peek() {
  const Door::Entry entry(door_, EntryKind::kLook);
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

BoardCounters CounterReader::board_counters(std::vector<CoreCounters> cores,
                                            const TransportStats& stats) {
  BoardCounters result;
  result.now_cycles = transport_->now();
  result.cores = std::move(cores);
  result.lockstep_tiles = stats.lockstep_tiles;
  result.lockstep_mismatches = stats.lockstep_mismatches;
  result.lockstep_semaphores = stats.lockstep_semaphores;
  result.lockstep_transfers = stats.lockstep_transfers;
  result.lockstep_text = stats.lockstep_text;
  result.check_findings = stats.check_findings;
  result.faults = stats.fault_tallies;
  hooks_.add_own(result);
  return result;
}

}  // namespace tpu::driver
