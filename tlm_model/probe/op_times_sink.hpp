// Where the cores spend the time of programs, by operation. Each cycle of a step belongs to one
// operation (spec/record/op_spans.hpp) or to none, so that all of them sum to the counter
// run_cycles.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "probe/op_time.hpp"
#include "probe/probe_set.hpp"
#include "record/op_spans.hpp"

namespace tpu::model {

class OpTimesSink final : public ProbeSink {
 public:
  explicit OpTimesSink(size_t cores) : cores_(cores) {}

  void listen(ProbeSet& probes) {
    probes.add(*this, {ProbeEvent::kProgram, ProbeEvent::kStart, ProbeEvent::kDone});
  }
  void program(const ProgramEvent& event) override;
  void start(const StartEvent& event) override;
  void done(const DoneEvent& event) override;

  // What was counted of a launch, all cores and steps together, by op id; forgets it.
  std::vector<OpTime> take_launch(uint32_t launch);

 private:
  struct Busy {
    uint32_t commands = 0;  // under way
    uint64_t since = 0;
  };
  using Times = std::map<uint32_t, OpTime>;  // by op id
  struct Core {
    Times* times = nullptr;  // of the launch that it runs
    spec::OpSpans spans{};
    std::map<uint32_t, Busy> busy{};  // by op id
  };

  static OpTime& time_of(Core& core, uint32_t op_id);
  static void charge(Core& core, const spec::OpSpan& span);

  std::vector<Core> cores_;
  std::map<uint32_t, Times> launches_;
};

}  // namespace tpu::model
