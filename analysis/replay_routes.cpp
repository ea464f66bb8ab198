// Transfers of cores and of groups of cores.
#include "analysis/replay_routes.hpp"

#include <algorithm>
#include <deque>

#include "board/board_loader.hpp"
#include "command/cost.hpp"

namespace tpu::driver {
namespace {

bool reads_hbm(const ReplayCommand& command) {
  return !command.fills && command.from == spec::RecordedMemory::kHbm;
}
bool writes_hbm(const ReplayCommand& command) { return command.to == spec::RecordedMemory::kHbm; }

void add_times(spec::Transfer& transfer, spec::ResourceId resource, uint32_t times) {
  for (uint32_t i = 0; i < times; ++i) {
    transfer.add(resource);
  }
}

}  // namespace

ReplayRoutes::ReplayRoutes(const ReplayProgram& program, const spec::BoardParams& board,
                           spec::BandwidthShare& share)
    : program_(program), board_(board), links_(spec::Links::with_cuts(board, share)) {
  for (int64_t chip = 0; chip < spec::chip_count(board_); ++chip) {
    hbm_.push_back(share.add_resource_gbps(board_.hbm.gbps_per_chip, board_.hbm.efficiency_percent,
                                           board_.core.clock_mhz));
  }
  for (size_t i = 0; i < program.cores.size(); ++i) {
    local_.push_back(
        share.add_resource(static_cast<uint64_t>(board_.dma.local_bytes_per_cycle), 1));
  }
  unused_ = share;
}

uint64_t ReplayRoutes::fixed_cycles(uint32_t core, const ReplayCommand& command) const {
  const uint64_t fixed =
      spec::transfer_fixed_cycles(board_, reads_hbm(command), writes_hbm(command), command.remote);
  return command.remote ? fixed + links_.data_latency(board_core(core), to_core(core, command))
                        : fixed;
}

void ReplayRoutes::add_alone(uint32_t core, const ReplayCommand& command,
                             spec::Transfer& transfer) const {
  if (reads_hbm(command)) {
    transfer.add(hbm_[chip_of(core)]);
  }
  const uint32_t to = to_core(core, command);
  if (writes_hbm(command) && !links_.cut(board_core(core), to)) {
    transfer.add(hbm_[to / static_cast<uint32_t>(board_.board.cores_per_chip)]);
  }
  if (command.remote) {
    links_.add_path(board_core(core), to, transfer);
  } else if (!reads_hbm(command) && !writes_hbm(command)) {
    transfer.add(local_[core]);
  }
}

uint32_t ReplayRoutes::on_chip(const CoreGroups& groups, uint32_t core) const {
  uint32_t count = 0;
  for (uint32_t i = 0; i < program_.cores.size(); ++i) {
    count += groups.first_of(i) == groups.first_of(core) && chip_of(i) == chip_of(core) ? 1 : 0;
  }
  return count;
}

void ReplayRoutes::use_groups(const CoreGroups& groups) {
  split_up_ = groups.split_up();
  on_chip_.assign(program_.cores.size(), 1);
  for (const uint32_t core : groups.firsts()) {
    on_chip_[core] = on_chip(groups, core);
  }
}

void ReplayRoutes::add(uint32_t core, const ReplayCommand& command,
                       spec::Transfer& transfer) const {
  if (split_up_) {
    add_alone(core, command, transfer);
    return;
  }
  const uint32_t times =
      (reads_hbm(command) ? 1 : 0) + static_cast<uint32_t>(writes_hbm(command) ? 1 : 0);
  if (times != 0) {
    add_times(transfer, hbm_[chip_of(core)], times * on_chip_[core]);
  }
  if (command.remote) {
    const uint32_t me = board_core(core);
    transfer.add(links_.out_port(me));
    // Each of the links that the transfers of the group use is used by as many of them as it has.
    add_times(transfer, links_.link({}), links_.hops(me, to_core(core, command)));
    transfer.add(links_.in_port(me));
  } else if (times == 0) {
    transfer.add(local_[core]);
  }
}

bool ReplayRoutes::can_use(const CoreGroups& groups) const {
  return std::ranges::all_of(groups.firsts(), [&](uint32_t core) {
    return 2 * on_chip(groups, core) + 2 + spec::Links::Way::kMost <= spec::Transfer::kMaxResources;
  });
}

bool ReplayRoutes::fair(const std::vector<const ReplayFlow*>& flows) {
  std::vector<uint32_t> kinds;
  for (const ReplayFlow* flow : flows) {
    const ReplayCommand& command = program_.cores[flow->core].command(flow->queue, flow->index);
    kinds.push_back(program_.way_of(flow->queue, flow->index) << 2 |
                    static_cast<uint32_t>(reads_hbm(command)) << 1 |
                    static_cast<uint32_t>(writes_hbm(command)));
  }
  std::ranges::sort(kinds);
  const auto [known, fresh] = fair_.try_emplace(kinds, false);
  if (!fresh) {
    return known->second;
  }
  spec::BandwidthShare share = unused_;
  std::deque<spec::Transfer> all;  // by flow, by core
  for (const ReplayFlow* flow : flows) {
    for (uint32_t i = 0; i < program_.cores.size(); ++i) {
      spec::Transfer& each = all.emplace_back();
      each.set_bytes(1);
      add_alone(i, program_.cores[i].command(flow->queue, flow->index), each);
      share.start(each, 0);
    }
  }
  std::vector<spec::Transfer*> none;
  share.update(0, none);
  known->second = true;
  for (size_t i = 0; i < all.size(); ++i) {
    known->second &= all[i].rate() == flows[i / program_.cores.size()]->rate();
  }
  return known->second;
}

}  // namespace tpu::driver
