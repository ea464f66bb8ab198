// The timeline of a run (--timeline), as a Perfetto trace. A group of tracks for each core: its
// program's steps, what the sequencer waits for, the program's marks, its control hart, and for
// each queue its commands and the waits of its head. A command is a slice from its start until its
// results are there, named by its operation, with the source line, and flows from the signal that
// let it start and to those that its own signals let start: so do transfers to other cores.
// Commands of a queue that overlap lie on tracks of their own. Counters: core_counters.hpp. Written
// as the run goes, in the order in which things end.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "probe/launch_programs.hpp"
#include "probe/probe_set.hpp"
#include "timeline/core_counters.hpp"
#include "timeline/perfetto_file.hpp"
#include "timeline/semaphore_flows.hpp"

namespace tpu::model {

struct TimelineOptions {
  std::string path;
  uint32_t chips = 4;
  uint32_t cores_per_chip = 2;
  std::vector<uint32_t> board_of_chip{};  // of a pod: each board is a row that holds its cores
  CoreCounterTracks::Numbers numbers{};
  uint64_t first_step = 0;           // of the board (kernel/step_counter.hpp)
  uint64_t step_count = UINT64_MAX;  // steps to write
};

class TimelineSink final : public ProbeSink {
 public:
  // Throws std::runtime_error when the file cannot be created or another run writes it.
  TimelineSink(const TimelineOptions& options, const LaunchPrograms& programs);

  void listen(ProbeSet& probes) {
    probes.add(*this,
               {ProbeEvent::kProgram, ProbeEvent::kIssue, ProbeEvent::kWait, ProbeEvent::kTake,
                ProbeEvent::kFlow, ProbeEvent::kStart, ProbeEvent::kSignal, ProbeEvent::kDone,
                ProbeEvent::kMark, ProbeEvent::kFault, ProbeEvent::kHart, ProbeEvent::kUpset});
  }
  void program(const ProgramEvent& event) override;
  void issue(const IssueEvent& event) override;
  void wait(const WaitEvent& event) override;
  void take(const TakeEvent& event) override;
  void flow(const FlowEvent& event) override;
  void start(const StartEvent& event) override;
  void signal(const SignalEvent& event) override;
  void done(const DoneEvent& event) override;
  void mark(const MarkEvent& event) override;
  void fault(const FaultEvent& event) override;
  void upset(const UpsetEvent& event) override;
  void hart(const HartEvent& event) override;

  // Completes the file. Empty, or what went wrong: also that no step of the window ran.
  std::string finish();

 private:
  using Track = PerfettoFile::Track;
  using Text = PerfettoFile::Text;

  class Flows {  // of a command: at most one for each of its waits or signals
   public:
    void add(uint64_t flow) {
      if (flow != 0 && count_ < ids_.size()) {
        ids_[count_++] = flow;
      }
    }
    std::span<const uint64_t> ids() const { return std::span(ids_).first(count_); }

   private:
    std::array<uint64_t, 4> ids_{};
    size_t count_ = 0;
  };
  struct Command {  // that has started
    uint64_t sequence = 0;
    size_t lane = 0;
    Flows in, out;
  };
  struct Transfer {
    uint64_t sequence = 0;
    FlowEvent::Place from{}, to{};
    uint64_t rate = 0;
  };
  struct Wait {
    bool open = false;
    uint64_t since = 0;
    Text name = 0;
    uint64_t wanted = 0;
  };
  struct Unit {  // a queue, or the sequencer
    Track waits = 0;
    Wait wait{};
    std::vector<Track> lanes{};
    std::vector<bool> taken{};  // by lane
    Flows takes{};              // of the head that is about to start
    std::vector<Command> commands{};
    std::vector<Transfer> transfers{};
  };
  struct Op {
    Text name = 0;
    PerfettoFile::Place place = 0;
  };
  struct Program {
    std::shared_ptr<const exe::ExecutableT> executable;  // null: nobody has named it
    Text name = 0;
    std::vector<Op> ops;
  };
  struct Core {
    Track group = 0, steps = 0, marks = 0, hart = 0;
    std::vector<Unit> units{};
    std::unique_ptr<CoreCounterTracks> counters{};
    std::shared_ptr<Program> program{};
    uint64_t step_since = 0;
    bool in_step = false;
    size_t marks_open = 0;
    bool awake = true;
    uint64_t awake_since = 0;
  };

  void add_core(uint32_t chip, uint32_t index, const TimelineOptions& options,
                PerfettoFile::Track parent);
  void begin_step(const ProgramEvent& event);
  void end_step(const ProgramEvent& event);
  std::shared_ptr<Program> program_of(uint32_t launch);
  Op op(Core& core, uint32_t op_id);
  Text wait_name(const WaitEvent& event);
  void end_wait(Unit& unit, uint64_t cycle);
  void move(const Transfer& transfer, uint64_t cycle, uint64_t change);
  bool in_window(uint64_t step) const { return step >= first_step_ && step < end_step_; }
  // In the window, or between two steps of it; before the first step of a run too.
  bool recording() const { return file_ != nullptr && begun_ >= first_step_; }
  void close(uint64_t cycle);

  const LaunchPrograms& programs_;
  const std::string path_;
  const uint64_t first_step_;
  const uint64_t end_step_;  // the first behind the window
  std::unique_ptr<PerfettoFile> file_;
  std::vector<Core> cores_;
  SemaphoreFlows flows_;
  uint64_t last_flow_ = 0;
  Text op_note_ = 0, pc_note_ = 0, step_note_ = 0, launch_note_ = 0, wanted_note_ = 0;
  Text awake_ = 0;
  std::array<Text, 256> categories_{};  // by opcode
  uint64_t begun_ = 0;                  // steps of the board
  uint32_t active_ = 0;                 // cores inside a step of the window
  bool recorded_ = false;
  std::string error_;
};

}  // namespace tpu::model
