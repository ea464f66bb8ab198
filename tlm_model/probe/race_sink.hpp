// Happens-before checker of core programs (--check): two commands that touch
// the same byte, one of them writing, must be ordered by an engine's queue or
// by semaphores, whatever the simulated times were. Vector clocks over the
// units that the board has (engine queues and sequencers), byte-precise states
// of VMEM, SMEM and HBM; also finds reads of bytes that nothing has written in
// this launch: of VMEM, SMEM (words to which nothing is), and HBM that the
// launch gets as undefined. Signals of one semaphore are matched to waits in
// order of their arrival; where another order is possible, in which a wait
// would end without a signal that has ended it, that is a finding too: a count
// that another takes. So are counts that nobody takes, at the end of a program
// or beyond the range of the semaphore. Credits of remote writes are nothing
// special: a write into a peer is behind the peer's last use of those bytes, by
// its signal or by the barrier. What the host reads and writes for a call of a
// program is behind the call, and before the answer; a transfer beside the
// program, before the answer to the call that finishes it. Not seen: other host
// transfers and control harts (barriers order them). No SystemC.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "probe/byte_states.hpp"
#include "probe/host_call_order.hpp"
#include "probe/launch_programs.hpp"
#include "probe/probe_set.hpp"
#include "tpu/board_report.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::model {

class RaceSink final : public ProbeSink {
 public:
  // `programs` say what the calls of launches mean; of a launch that they do not have, each answer
  // is behind all transfers that have begun. They outlive the sink.
  explicit RaceSink(const spec::BoardParams& board, const LaunchPrograms* programs = nullptr);

  void listen(ProbeSet& probes);
  // The first core of a gang's (launch, step) forgets the orders of the step
  // before, since the barrier has ordered everything.
  void program(const ProgramEvent& event) override;
  void issue(const IssueEvent& event) override;
  // Only for the host.
  void wait(const WaitEvent& event) override;
  void transfer(const TransferEvent& event) override;
  void take(const TakeEvent& event) override;
  void access(const AccessEvent& event) override;
  void start(const StartEvent& event) override;
  void signal(const SignalEvent& event) override;
  void done(const DoneEvent& event) override;
  void fault(const FaultEvent& event) override;

  // At most kMaxFindings; count() has all.
  const std::vector<spec::CheckFinding>& findings() const { return findings_; }
  // Those since the last call.
  std::vector<spec::CheckFinding> take_findings();
  uint64_t count() const { return count_; }

 private:
  static constexpr size_t kMaxFindings = 100;
  static constexpr ByteStates::State kUnwritten = 0;  // first record of each core
  static constexpr ByteStates::State kWritten = 1;    // before this launch or step; second record
  static constexpr uint32_t kSequencer = static_cast<uint32_t>(kSequencerUnit);
  static constexpr uint32_t kHost = kUnits;  // reads and writes for the calls of a core
  static constexpr size_t kAllUnits = kHost + 1;
  using Clock = std::vector<uint32_t>;  // by unit of the board

  // What is known of bytes. Many bytes share a record: an access decides once
  // about each.
  struct Record {
    bool written = false;  // there is something to read
    uint32_t write_unit = 0;
    uint32_t write_clock = 0;                      // 0: no write in this step
    std::array<uint32_t, kAllUnits> read_clock{};  // by unit of the core
    // Of the access that looked at it last:
    uint64_t looked = 0;         // number of the access
    bool clean = false;          // it is ordered behind what is known
    ByteStates::State read = 0;  // record of the bytes that it has read
  };
  struct Memories {  // of a core
    std::array<ByteStates, kProbeMemories> bytes = {ByteStates(kUnwritten), ByteStates(kUnwritten),
                                                    ByteStates(kWritten)};
    std::vector<Record> records;
    size_t kept = 0;              // records that were in use when they were last looked through
    uint64_t wrote = 0;           // number of the access
    ByteStates::State write = 0;  // record of the bytes that it has written
  };
  struct Command {
    uint32_t pc = 0;
    uint32_t op_id = 0;
  };
  struct Flight {  // a started command, and the clock that its signals carry
    uint64_t sequence;
    Clock clock;
  };
  struct Unit {
    Clock clock;
    uint64_t begun = 0;        // sequence of the command that left the queue last
    std::deque<Clock> issued;  // clocks of queued commands
    std::deque<Flight> flights;
    std::vector<std::pair<uint32_t, Command>> history;  // by the clock that a command had
  };
  struct Moment {  // of a unit: of its command with that clock
    uint32_t unit;
    uint32_t clock;
  };
  struct Pending {
    uint64_t until;  // signals so far, this one included
    Moment from;
    Clock clock;
  };
  struct Ended {  // a wait, and the signals that have ended it
    Moment wait{};
    std::vector<Moment> by{};
  };
  struct Semaphore {
    uint64_t signalled = 0;
    uint64_t taken = 0;
    std::deque<Pending> pending;
    std::deque<Ended> ended;  // the last of them
    bool told = false;        // a count that another takes
  };

  struct Told {  // the finding before, about bytes
    const char* what = nullptr;
    Moment other{};
    uint32_t owner = 0;
    ProbeMemory memory = ProbeMemory::kVmem;
    uint64_t access = 0;
    uint64_t low = 0, end = 0;
    bool goes_on(const Told& before) const {
      return what == before.what && other.unit == before.other.unit &&
             other.clock == before.other.clock && owner == before.owner &&
             memory == before.memory && access == before.access && low == before.end;
    }
  };

  // Number of a unit of the board; `unit` as in ProbeSource.
  uint32_t unit_id(uint32_t core, uint32_t unit) const {
    return core * core_units() + place_[unit];
  }
  uint32_t unit_id(const ProbeSource& source) const { return unit_id(source.core, source.unit); }
  uint32_t core_units() const { return static_cast<uint32_t>(unit_of_.size()); }
  void begin(const ProbeSource& source);
  void begin_step(uint32_t core, uint64_t epoch);
  void forget_step(uint32_t core);
  void note(uint32_t me, const AccessRange& range);
  void write(uint32_t me, const AccessRange& range);
  void read(uint32_t me, const AccessRange& range);
  void look(uint32_t me, const AccessRange& range, ByteStates::State state);
  bool ordered(uint32_t me, const AccessRange& range, const Record& record) const;
  ByteStates::State write_record(uint32_t me, Memories& memories);
  ByteStates::State read_record(uint32_t me, Memories& memories, ByteStates::State state);
  void complete_words(const AccessRange& range);
  void drop_unused(Memories& memories);
  Semaphore& semaphore_of(uint32_t core, uint32_t index) {
    return semaphores_[core * semaphore_count_ + index];
  }
  void add_signal(const Moment& from, const Clock& clock, const SignalEvent& event);
  void find_other_order(const Moment& from, const Clock& clock, const SignalEvent& event);
  static void join(Clock& into, const Clock& from);
  Clock copy(const Clock& clock);
  void give_back(Clock& clock) { spare_.push_back(std::move(clock)); }
  void check(uint32_t me, const AccessRange& range, uint64_t low, uint64_t high,
             const Record& record);
  void report(const char* what, uint32_t me, std::optional<Moment> other, const AccessRange& range,
              uint64_t low, uint64_t end);
  void add(spec::CheckFinding finding);
  static std::string where_of(const Told& told);
  spec::CommandPlace place_of(const Moment& moment) const;

  const uint32_t cores_;
  const uint32_t semaphore_count_;
  const LaunchPrograms* const programs_;
  std::vector<uint32_t> unit_of_;            // units that a core of the board has, the host last
  std::array<uint32_t, kAllUnits> place_{};  // their places in unit_of_
  std::vector<Unit> units_;                  // by core and unit
  std::vector<Clock> spare_;                 // for their room
  std::vector<Semaphore> semaphores_;
  std::vector<Memories> memory_;  // by core
  uint64_t access_ = 0;           // number of the access; reads and writes of a command are two
  std::vector<uint64_t> epoch_;   // by core
  struct Step {
    uint32_t launch = 0;
    uint64_t step = 0;  // of the board
    bool runs = false;
  };
  std::vector<Step> steps_;           // by core
  std::vector<HostCallOrder> calls_;  // by core
  std::vector<spec::CheckFinding> findings_;
  Told told_;
  uint64_t taken_ = 0;  // of them, by take_findings()
  uint64_t count_ = 0;
};

}  // namespace tpu::model
