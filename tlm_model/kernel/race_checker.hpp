// Happens-before checker of core programs (--check): two commands that touch the same byte, one of
// them writing, must be ordered by an engine's queue or by semaphores, whatever the simulated times
// were. Vector clocks over the units of all cores (engine queues and sequencers), byte-precise
// interval maps of VMEM, SMEM and HBM; also finds reads of VMEM that nothing ever wrote. Signals of
// one semaphore are matched to waits in order, so several producers of one semaphore are ordered as
// they happened to arrive. Not seen: host transfers and control harts (barriers order them). No
// SystemC.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace tpu::model {

class RaceChecker {
 public:
  enum class Memory : uint8_t { kVmem, kSmem, kHbm };
  static constexpr int kMemories = 3;
  static constexpr uint32_t kUnits = 8;  // of a core: seven queues, sequencer last
  static constexpr uint32_t kSequencer = 7;

  RaceChecker(uint32_t cores, uint32_t semaphores);

  // A program starts on `core`; the first core of a gang's (launch, step) forgets the orders of the
  // step before, since the barrier has ordered everything.
  void program_start(uint32_t core, uint32_t mask, uint32_t launch, uint32_t step);
  // The sequencer puts a command into a queue; the queue is dropped.
  void issue(uint32_t core, uint32_t queue);
  void drop(uint32_t core, uint32_t queue);
  // The head of a queue starts; its waits follow as take() (amount 0: only looked at), then its
  // accesses, then launched(), which keeps the clock that its signals carry.
  void begin(uint32_t core, uint32_t queue, uint32_t pc, uint32_t op_id);
  void take(uint32_t core, uint32_t unit, uint32_t semaphore, uint32_t threshold, bool takes);
  void launched(uint32_t core, uint32_t queue, size_t flight);
  void signal(uint32_t core, uint32_t queue, size_t flight, uint32_t to_core, uint32_t semaphore,
              uint32_t amount);
  void scalar_signal(uint32_t core, uint32_t semaphore, uint32_t amount);
  // Bytes [low, low + bytes) of a memory of `owner`, by a unit of `core`.
  void access(uint32_t core, uint32_t unit, uint32_t owner, Memory memory, uint64_t low,
              uint64_t bytes, bool write);

  // At most kMaxFindings texts; count() has all.
  const std::vector<std::string>& findings() const { return findings_; }
  uint64_t count() const { return count_; }

 private:
  static constexpr size_t kMaxFindings = 100;
  using Clock = std::vector<uint32_t>;  // by unit of the board

  struct Cell {  // of the bytes from its key to `end`
    uint64_t end = 0;
    bool written = false;
    uint32_t write_unit = 0;
    uint32_t write_clock = 0;  // 0: no write in this step
    std::array<uint32_t, kUnits> read_clock{};
  };
  using Map = std::map<uint64_t, Cell>;
  struct Command {
    uint32_t pc = 0;
    uint32_t op_id = 0;
  };
  struct Pending {
    uint64_t until;  // signals so far, this one included
    Clock clock;
  };
  struct Semaphore {
    uint64_t signalled = 0;
    uint64_t taken = 0;
    std::deque<Pending> pending;
  };

  uint32_t unit_id(uint32_t core, uint32_t unit) const { return core * kUnits + unit; }
  Semaphore& semaphore(uint32_t core, uint32_t index) {
    return semaphores_[core * semaphore_count_ + index];
  }
  void add_signal(const Clock& clock, uint32_t to_core, uint32_t index, uint32_t amount);
  static void join(Clock& into, const Clock& from);
  static Map::iterator split(Map& map, uint64_t at);
  void check_cell(uint32_t me, uint32_t owner, Memory memory, uint64_t low, const Cell& cell,
                  bool write);
  void report(const char* what, uint32_t me, uint32_t other, uint32_t other_clock, uint32_t owner,
              Memory memory, uint64_t low, uint64_t end);
  std::string name_of(uint32_t unit, uint32_t clock) const;

  const uint32_t cores_;
  const uint32_t semaphore_count_;
  std::vector<Clock> clock_;                          // by unit
  std::vector<std::deque<Clock>> issued_;             // by unit: clocks of queued commands
  std::vector<std::vector<Clock>> flight_clock_;      // by unit, flight
  std::vector<std::map<uint32_t, Command>> history_;  // by unit: clock of a command -> what it was
  std::vector<Semaphore> semaphores_;
  std::vector<std::array<Map, kMemories>> memory_;  // by core
  std::vector<uint64_t> epoch_;                     // by core
  std::vector<std::string> findings_;
  uint64_t count_ = 0;
};

}  // namespace tpu::model
