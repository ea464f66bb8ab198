// The control channel between the gsync blocks of a fake board (spec/regs/gsync.toml), in zero
// time. The rules of the root are spec/gang/gang_root.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "fake/fake_core.hpp"
#include "gang/gang_root.hpp"

namespace tpu::firmware {

class FakeGangs {
 public:
  explicit FakeGangs(size_t cores) : cores_(cores), roots_(cores) {}
  /// Core number `index` of the board, before anything arrives.
  void add(uint32_t index, FakeCore& core) { cores_.at(index) = &core; }

  /// A core arrived at a barrier of kind TPU_GSYNC_KIND_*.
  void arrive(uint32_t core, uint32_t kind);
  /// A core aborts a gang. The first abort of a tag counts.
  void abort(uint32_t core, uint32_t tag, uint32_t root, const spec::CoreSet& gang, uint32_t code);
  /// The same by the host, if the core is in the gang.
  void abort_by_host(uint32_t core, uint32_t tag);
  /// A core was reset: what it counted as a root is gone.
  void reset(uint32_t core) { roots_.at(core).reset(); }

 private:
  void deliver(const std::vector<spec::GangMessage>& messages);
  void released(uint32_t index, const spec::GangArrival& full);
  void aborted(uint32_t index, const spec::GangAbort& abort);

  std::vector<FakeCore*> cores_;
  std::vector<spec::GangRoot> roots_;  // by core
};

}  // namespace tpu::firmware
