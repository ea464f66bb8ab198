// Resources and latencies of the transfers of a replay, of a core or of a group of cores that are
// replayed as one (core_groups.hpp). Of a group each resource stands for one of each of its cores
// or chips, and carries what all transfers of the group bring to that.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "analysis/core_groups.hpp"
#include "analysis/replay_core.hpp"
#include "board/board_loader.hpp"
#include "command/bandwidth_share.hpp"
#include "command/links.hpp"

namespace tpu::driver {

class ReplayRoutes {
 public:
  /// Adds resources to `share`. The program and the board outlive it.
  ReplayRoutes(const ReplayProgram& program, const spec::BoardParams& board,
               spec::BandwidthShare& share);

  const spec::Links& links() const { return links_; }
  uint32_t board_core(uint32_t core) const { return program_.cores[core].core; }
  uint32_t chip_of(uint32_t core) const {
    return board_core(core) / static_cast<uint32_t>(board_.board.cores_per_chip);
  }
  uint64_t fixed_cycles(uint32_t core, const ReplayCommand& command) const;
  /// Whether a transfer can have all the resources of such groups.
  bool can_use(const CoreGroups& groups) const;
  void use_groups(const CoreGroups& groups);
  /// Gives a transfer of the first core of a group, and of the others of it, what it uses.
  void add(uint32_t core, const ReplayCommand& command, spec::Transfer& transfer) const;

  /// With all cores as one group: whether each of these transfers of the first core, all that are
  /// under way, has the rate that it and those of the other cores have when all of them are counted
  /// one by one. Not so where a link is used more than others, or for what rounding leaves.
  bool fair(const std::vector<const ReplayFlow*>& flows);

 private:
  uint32_t to_core(uint32_t core, const ReplayCommand& command) const {
    return program_.cores[core].reached(command.to_core);
  }
  uint32_t on_chip(const CoreGroups& groups, uint32_t core) const;
  void add_alone(uint32_t core, const ReplayCommand& command, spec::Transfer& transfer) const;

  const ReplayProgram& program_;
  const spec::BoardParams& board_;
  const spec::Links links_;
  std::vector<spec::ResourceId> hbm_;    // by chip
  std::vector<spec::ResourceId> local_;  // by core of the record
  bool split_up_ = true;                 // the groups
  std::vector<uint32_t> on_chip_;        // by core: of its group
  spec::BandwidthShare unused_;
  std::map<std::vector<uint32_t>, bool> fair_{};  // by what is under way
};

}  // namespace tpu::driver
