// The next command of any core that would signal a semaphore.
#include "board/board_waits.hpp"

#include "core/core.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model {
namespace {

// What is queued comes before what is not issued, the core itself before its peers.
void find_ender(std::span<const Core* const> cores, spec::UnitWait& wait) {
  const uint32_t core = wait.at.core;
  for (const bool issued : {true, false}) {
    for (size_t i = 0; i < cores.size(); ++i) {
      const Core& from = *cores[(core + i) % cores.size()];
      if (const auto found = from.signaller(core, wait.index, issued)) {
        wait.ender = found->at;
        wait.behind = found->behind;
        return;
      }
    }
  }
}

}  // namespace

std::vector<spec::UnitWait> board_waits(std::span<const Core* const> cores) {
  std::vector<spec::UnitWait> all;
  for (const Core* core : cores) {
    for (spec::UnitWait& wait : core->waits()) {
      if (wait.what == spec::UnitWait::For::kSemaphore) {
        find_ender(cores, wait);
      }
      all.push_back(std::move(wait));
    }
  }
  return all;
}

void WatchdogSink::fault(const FaultEvent& event) {
  if (event.code != TPU_FAULT_WATCHDOG) {
    return;
  }
  const uint32_t launch = board_.launch(event.source.core);
  if (launch_ != launch) {
    launch_ = launch;
    waits_ = board_.waits();
  }
}

}  // namespace tpu::model
