// Who waits for whom on the whole board: what its cores know, put together across cores; and as it
// was when a watchdog ended a launch, since the end drops what is queued.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "probe/probe_set.hpp"
#include "tpu/board_report.hpp"

namespace tpu::model {

class Core;

// Units of all cores that are not idle, with the commands that would end their waits.
std::vector<spec::UnitWait> board_waits(std::span<const Core* const> cores);

class WatchdogSink final : public ProbeSink {
 public:
  using Waits = std::function<std::vector<spec::UnitWait>()>;
  explicit WatchdogSink(Waits waits) : waits_now_(std::move(waits)) {}

  void listen(ProbeSet& probes) { probes.add(*this, {ProbeEvent::kFault}); }
  // Comes before the core stops.
  void fault(const FaultEvent& event) override;

  const std::vector<spec::UnitWait>& waits() const { return waits_; }

 private:
  const Waits waits_now_;
  std::vector<spec::UnitWait> waits_;
};

}  // namespace tpu::model
