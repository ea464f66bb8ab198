// Record of one step (--record, `tpuboard report`): the graph of its commands as they ran
// (spec/record/step_record.hpp), of several steps the longest. Kept in memory until it is taken or,
// with a path, written: after the last of the steps, or when the sink is finished. Of a step with
// more commands than a record holds there is only their number.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "file/output_file.hpp"
#include "probe/launch_programs.hpp"
#include "probe/probe_set.hpp"
#include "record/step_record.hpp"
#include "timeline/live_bytes.hpp"

namespace tpu::model {

struct RecordOptions {
  // Of the board (kernel/step_counter.hpp). Of several steps the longest is kept.
  uint64_t first_step = 0;
  uint64_t steps = 1;
  std::string path = {};  // of the file; empty: none
};

class RecordSink final : public ProbeSink {
 public:
  // The programs outlive it. Throws std::runtime_error where the file cannot be written.
  RecordSink(const spec::BoardParams& board, const RecordOptions& options,
             const LaunchPrograms& programs);

  void listen(ProbeSet& probes) {
    probes.add(*this,
               {ProbeEvent::kProgram, ProbeEvent::kIssue, ProbeEvent::kWait, ProbeEvent::kTake,
                ProbeEvent::kAccess, ProbeEvent::kFlow, ProbeEvent::kStart, ProbeEvent::kSignal,
                ProbeEvent::kDone, ProbeEvent::kTransfer, ProbeEvent::kUpset});
  }
  void program(const ProgramEvent& event) override;
  void issue(const IssueEvent& event) override;
  void wait(const WaitEvent& event) override;
  void take(const TakeEvent& event) override;
  void access(const AccessEvent& event) override;
  void flow(const FlowEvent& event) override;
  void start(const StartEvent& event) override;
  void signal(const SignalEvent& event) override;
  void done(const DoneEvent& event) override;
  void transfer(const TransferEvent& event) override;
  void upset(const UpsetEvent& event) override;

  // The record, once all cores of the gang have ended the step as they should; forgets it. Empty
  // before.
  std::string take();
  // With a path: completes the file. What went wrong with it, or that there was no such step; empty
  // else. The last call.
  std::string finish();

 private:
  struct Core {
    bool in_step = false;
    uint64_t first = 0;                   // sequence number of the first command
    uint64_t stalled_since = UINT64_MAX;  // of the sequencer, at its next item
    spec::RecordedCore record{};
  };

  bool begins(const ProgramEvent& event);
  void begin_step(const ProgramEvent& event);
  void end_step(const ProgramEvent& event);
  void complete();
  void write();
  void forget();
  void describe(uint32_t launch);
  // Null: not of the step, or left out.
  spec::RecordedCommand* command(const ProbeSource& source);
  void add_item(Core& core, uint64_t cycle, spec::SequencerItem item);

  const spec::BoardParams board_;
  const RecordOptions options_;
  const uint64_t end_step_;  // the first behind them
  const LaunchPrograms& programs_;
  std::vector<Core> cores_;
  spec::StepRecord record_;               // under way
  std::optional<spec::StepRecord> kept_;  // over
  uint64_t kept_cycles_ = 0;
  uint64_t next_step_ = 0;  // the least number that no core has begun
  std::unique_ptr<spec::OutputFile> file_;
  std::string error_;
  spec::CoreSet gang_;
  spec::CoreSet ended_;  // of it
  uint64_t commands_ = 0;
  uint32_t seen_core_ = UINT32_MAX;  // whose memory is followed
  LivePages vmem_, hbm_;
};

}  // namespace tpu::model
