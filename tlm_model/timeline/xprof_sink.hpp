// The profile of a run for XProf and TensorBoard (--xprof; jax.profiler): a plane for each core
// with its steps, the programs they ran, and the operations, each in the cycles that belong to it
// (spec/record/op_spans.hpp), so that the operations of a step never overlap and sum, with idle
// time, to the step. With each operation go its matmul operations and the bytes it moved in HBM and
// to other cores, as counted. Each launch is a step, or those of one event of the caller's profile
// are (RunOptions::trace_context): XProf joins them. Kept in memory until it is taken; what would
// be more than kMostSpans is left out and told.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "probe/launch_programs.hpp"
#include "probe/probe_set.hpp"
#include "record/op_spans.hpp"
#include "timeline/xspace.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::model {

class XprofSink final : public ProbeSink {
 public:
  static constexpr size_t kMostSpans = size_t{1} << 22;

  // Steps of the board (kernel/step_counter.hpp). The programs outlive it. A step of a core that
  // begins with `most_spans` or more is left out.
  XprofSink(const spec::BoardParams& params, uint64_t first_step, uint64_t steps,
            const LaunchPrograms& programs, size_t most_spans = kMostSpans);

  void listen(ProbeSet& probes) {
    probes.add(*this,
               {ProbeEvent::kProgram, ProbeEvent::kFlow, ProbeEvent::kStart, ProbeEvent::kDone});
  }
  void program(const ProgramEvent& event) override;
  void flow(const FlowEvent& event) override;
  void start(const StartEvent& event) override;
  void done(const DoneEvent& event) override;

  // An XSpace of the steps that are over; forgets them. Empty: there are none.
  std::string take_xspace();

 private:
  struct Step {
    uint64_t number = 0;
    size_t program = 0;  // index
    uint64_t trace_context = 0;
    uint64_t begin = 0, end = 0;
    size_t spans = 0;  // the first of them; they go on to those of the next step
  };
  struct OpTotals {
    uint64_t flops = 0;
    uint64_t hbm_read = 0;
    uint64_t hbm_written = 0;
    uint64_t to_cores = 0;            // bytes
    uint64_t spans = 0;               // over all cores and steps
    size_t rank = spec::kQueueCount;  // of its foremost engine
  };
  struct Program {
    std::shared_ptr<const exe::ExecutableT> executable;  // null: nobody has named it
    std::map<uint32_t, OpTotals> ops{};                  // by op id
  };
  struct Core {
    bool in_step = false;
    spec::OpSpans foremost{};
    std::vector<spec::OpSpan> spans{};
    std::vector<Step> steps{};
  };
  using OpEvents = std::map<uint32_t, uint64_t>;  // op id -> event metadata

  size_t program_of(uint32_t launch);
  void add(Core& core, const spec::OpSpan& span);
  OpTotals& totals(const Core& core, uint32_t op_id);
  uint64_t picoseconds(uint64_t cycle) const;
  std::string core_plane(size_t index) const;
  std::string host_plane() const;
  std::string metadata_plane() const;
  void add_core_stats(XPlane& plane, size_t index) const;
  OpEvents add_ops(XPlane& plane, const Program& program, size_t number) const;
  XPlane::Stats op_stats(const Program& program, size_t number, uint32_t op_id,
                         const OpTotals& op) const;
  XPlane::Stats group_stats(const Step& step) const;
  void add_steps(XPlane& plane, const Core& core) const;
  void add_modules(XPlane& plane, const Core& core) const;
  void add_op_events(XPlane& plane, const Core& core) const;

  const spec::BoardParams params_;
  const uint64_t first_step_;
  const uint64_t end_step_;  // the first behind the window
  const LaunchPrograms& launches_;
  const size_t most_spans_;
  std::vector<Core> cores_;
  std::vector<Program> programs_;
  size_t spans_ = 0;
  uint64_t left_out_ = 0;       // steps of cores
  bool has_contexts_ = false;   // of the caller
  uint64_t base_ = UINT64_MAX;  // cycle at which the profile begins
};

}  // namespace tpu::model
