// Who waits for whom on the whole board: what its cores know, put together across cores; and as it
// was when a watchdog ended a launch, since the end drops what is queued.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "probe/probe_set.hpp"
#include "tpu/board_report.hpp"

namespace tpu::model {

class Core;

// Units of all cores that are not idle, with the commands that would end their waits.
std::vector<spec::UnitWait> board_waits(std::span<const Core* const> cores);

class WatchdogSink final : public ProbeSink {
 public:
  struct Board {
    std::function<std::vector<spec::UnitWait>()> waits;
    std::function<uint32_t(uint32_t core)> launch;  // id of the last one
  };
  explicit WatchdogSink(Board board) : board_(std::move(board)) {}

  void listen(ProbeSet& probes) { probes.add(*this, {ProbeEvent::kFault}); }
  // Comes before the core stops.
  void fault(const FaultEvent& event) override;

  // At the first watchdog of the launch that had one last: those behind it see cores that have
  // stopped.
  const std::vector<spec::UnitWait>& waits() const { return waits_; }
  // Id of that launch; 0: there was none.
  uint32_t launch() const { return launch_.value_or(0); }

 private:
  const Board board_;
  std::optional<uint32_t> launch_;  // that waits_ is of
  std::vector<spec::UnitWait> waits_;
};

}  // namespace tpu::model
