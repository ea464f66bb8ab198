// The next command of any core that would signal a semaphore.
#include "board/board_waits.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "command/scalar_ops.hpp"
#include "core/core.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model {
namespace {

// The other cores that Core::signaller() can find a command for, some of them more than once, and
// numbers that are no cores.
std::vector<uint32_t> signalled(const Core& core, bool issued) {
  std::vector<uint32_t> cores;
  if (!issued) {
    for (size_t i = 0; i < std::tuple_size_v<spec::ScalarRegisters>; ++i) {
      cores.push_back(core.seq().core_in_register(i));
    }
    return cores;
  }
  const auto add = [&](const QueuedCommand& queued) {
    for (size_t i = 0; i < queued.command->signal.size(); ++i) {
      const spec::Signal& signal = queued.command->signal[i];
      if (signal.valid() && signal.remote()) {
        cores.push_back(queued.signal_peer[i]);
      }
    }
  };
  for (size_t i = 0; i < spec::kQueueCount; ++i) {
    const CommandQueueIf* const queue = core.queue(i);
    if (queue == nullptr) {
      continue;
    }
    for (size_t at = 0; const QueuedCommand* command = queue->started(at); ++at) {
      add(*command);
    }
    for (size_t at = 0; const QueuedCommand* command = queue->queued(at); ++at) {
      add(*command);
    }
  }
  return cores;
}

// For each core, by number, the places of those that can signal it, in ascending order. A pod has
// too many cores to ask each one for each wait.
using Signallers = std::unordered_map<uint32_t, std::vector<size_t>>;

Signallers signallers_of(std::span<const Core* const> cores, bool issued) {
  Signallers all;
  for (size_t i = 0; i < cores.size(); ++i) {
    for (const uint32_t other : signalled(*cores[i], issued)) {
      std::vector<size_t>& places = all[other];
      if (places.empty() || places.back() != i) {
        places.push_back(i);
      }
    }
  }
  return all;
}

class Enders {
 public:
  explicit Enders(std::span<const Core* const> cores) : cores_(cores) {}

  // What is queued comes before what is not issued, the core itself before its peers, and these in
  // the order of the cores behind it. `own`: the place of the core that waits.
  void find(spec::UnitWait& wait, size_t own) {
    for (const bool issued : {true, false}) {
      if (ask(*cores_[own], wait, issued)) {
        return;
      }
      std::optional<Signallers>& known = issued ? issued_ : not_issued_;
      if (!known) {
        known = signallers_of(cores_, issued);
      }
      const std::vector<size_t>& places = (*known)[wait.at.core];
      const auto begin = std::ranges::lower_bound(places, wait.at.core % cores_.size());
      const auto asks = [&](size_t place) { return ask(*cores_[place], wait, issued); };
      if (std::any_of(begin, places.end(), asks) || std::any_of(places.begin(), begin, asks)) {
        return;
      }
    }
  }

 private:
  static bool ask(const Core& from, spec::UnitWait& wait, bool issued) {
    const auto found = from.signaller(wait.at.core, wait.index, issued);
    if (found) {
      wait.ender = found->at;
      wait.behind = found->behind;
    }
    return found.has_value();
  }

  const std::span<const Core* const> cores_;
  std::optional<Signallers> issued_, not_issued_;  // once a wait needs them
};

}  // namespace

std::vector<spec::UnitWait> board_waits(std::span<const Core* const> cores) {
  std::vector<spec::UnitWait> all;
  Enders enders(cores);
  for (size_t own = 0; own < cores.size(); ++own) {
    for (spec::UnitWait& wait : cores[own]->waits()) {
      if (wait.what == spec::UnitWait::For::kSemaphore) {
        enders.find(wait, own);
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
