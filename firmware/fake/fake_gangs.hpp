// The control channel between the gsync blocks of a fake board (spec/regs/gsync.toml), in zero
// time: barriers are counted and aborts are spread by the root, the lowest core of the mask.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "fake/fake_core.hpp"

namespace tpu::firmware {

class FakeGangs {
 public:
  explicit FakeGangs(size_t cores) : cores_(cores), roots_(cores) {}
  /// Core number `index` of the board, before anything arrives.
  void add(uint32_t index, FakeCore& core) { cores_.at(index) = &core; }

  /// A core arrived at a barrier of kind TPU_GSYNC_KIND_*.
  void arrive(uint32_t core, uint32_t kind);
  /// A core aborts a gang. The first abort of a tag counts.
  void abort(uint32_t core, uint32_t tag, uint32_t mask, uint32_t code);
  /// The same by the host, if the core is in the gang.
  void abort_by_host(uint32_t core, uint32_t tag);
  /// A core was reset: what it counted as a root is gone.
  void reset(uint32_t core) { roots_.at(core).barriers.clear(); }

 private:
  struct Arrival {
    uint32_t tag;
    uint32_t kind;
    uint32_t step;
    uint32_t mask;
  };
  struct Barrier {
    Arrival what;
    uint32_t arrived;
  };
  struct Aborted {
    uint32_t tag;
    uint32_t origin;
    uint32_t code;
  };
  struct Root {
    std::vector<Barrier> barriers;
    std::deque<Aborted> aborted;  // the oldest first
  };

  Root& root_of(uint32_t mask);
  void count(uint32_t core, const Arrival& arrival);
  bool mismatch(uint32_t core, const Arrival& arrival);
  void release(const Arrival& full);
  void tell_abort(uint32_t core, uint32_t mask, const Aborted& aborted);
  static const Aborted* find_aborted(const Root& root, uint32_t tag);
  static void forget_old(Root& root, uint32_t youngest);

  std::vector<FakeCore*> cores_;
  std::vector<Root> roots_;
};

}  // namespace tpu::firmware
