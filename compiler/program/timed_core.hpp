// A core of the timed machine: the sequencer, the queues and the semaphores of tlm_model/core with
// their times and without data. What it does in a cycle does not depend on the order of its parts.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "command/bandwidth_share.hpp"
#include "program/timed_command.hpp"
#include "program/timed_scalar.hpp"

namespace tpu::compiler {

inline constexpr uint64_t kNever = UINT64_MAX;

class TimedCore;

// What connects the cores. Peers are cores of the board.
class TimedFabric {
 public:
  virtual ~TimedFabric() = default;
  // Registers the resources of a transfer and returns its fixed cycles.
  virtual uint64_t route(const TimedCommand& command, uint32_t partition,
                         std::span<const uint32_t> peers, spec::Transfer& transfer) = 0;
  virtual void start(spec::Transfer& transfer) = 0;
  // Of a command without data that signals core `peer` of the board.
  virtual uint64_t control_latency(uint32_t partition, uint32_t peer) = 0;
  virtual TimedCore& peer(uint32_t core) = 0;
  // Every core sends to the one that stands to it as the first core of the chip does to its own.
  virtual bool symmetric(const TimedScalars& scalars, uint8_t peer_reg) = 0;
};

class TimedCore {
 public:
  // Partition `index` of `cores`, which starts at cycle `start`. `alone`: no other core is
  // simulated, so that loops can be skipped; with `replicas` > 1 it stands for that many.
  struct Setup {
    uint32_t index = 0, cores = 1, replicas = 1;
    uint64_t start = 0;
    bool alone = true;
  };
  TimedCore(TimedProgram& program, const spec::BoardParams& board, TimedFabric& fabric,
            const Setup& setup);

  // Does everything that is due at `now`; false: nothing was.
  bool step(uint64_t now);
  // When something is due next, kNever if that is for others to say.
  uint64_t wake() const { return wake_; }
  void wake_at(uint64_t cycle) { wake_ = std::min(wake_, cycle); }
  struct Flight;
  // The bytes of a transfer of this core have passed.
  void passed(const Flight& flight);
  void signal(uint64_t now, uint8_t semaphore, uint32_t amount);
  void landing(int count) { inbound_ += count; }

  bool ended() const { return ended_; }
  uint64_t cycles() const { return end_ - setup_.start + skipped_; }
  // The cores would differ in what they do, so that one cannot stand for all.
  bool differs() const { return differs_; }
  uint64_t steps() const { return steps_; }
  uint64_t commands() const { return commands_; }
  const Work& work() const { return work_; }  // of what was issued

  // Loops: the machine is where it was one period before and goes the same way again.
  bool looped() const { return looped_; }
  // Skips the periods that take the same way. The clock stays: their cycles are in skipped().
  void skip_periods(uint64_t most_steps);
  uint64_t skipped() const { return skipped_; }

  // A started command. Kept in place while its transfer is active.
  struct Flight : spec::Transfer {
    const TimedCommand* command = nullptr;
    uint32_t partition = 0, queue = 0;
    int64_t out = 0;
    uint64_t done_at = 0;  // of a transfer: kNever until its bytes have passed
    uint64_t fixed_cycles = 0;
    uint32_t peer = 0;
    std::array<uint32_t, 2> signal_peer{};
  };

 private:
  struct Queued {
    const TimedCommand* command = nullptr;
    int64_t out = 0;
    std::array<uint32_t, 2> peers{};  // the second: of the other core of the chip
    uint32_t peer_count = 1;
    std::array<uint32_t, 2> signal_peer{};
  };
  struct Queue {
    std::vector<Queued> waiting;  // rings
    size_t head = 0, count = 0;
    std::vector<Flight> flights;
    size_t first = 0, flying = 0;
    uint64_t next_start = 0;
    bool blocked = false;  // its head could start, were it not for semaphores

    Queued& waiting_at(size_t i) { return waiting[wrapped(head + i, waiting.size())]; }
    const Queued& waiting_at(size_t i) const { return waiting[wrapped(head + i, waiting.size())]; }
    Flight& flight_at(size_t i) { return flights[wrapped(first + i, flights.size())]; }
    const Flight& flight_at(size_t i) const { return flights[wrapped(first + i, flights.size())]; }

   private:
    // Of an index that is less than twice the size of the ring.
    static size_t wrapped(size_t i, size_t size) { return i < size ? i : i - size; }
  };
  enum class Stall : uint8_t { kNone, kQueueFull, kSemaphore, kHalt };
  struct Pending {
    uint64_t at;
    uint8_t semaphore;
    uint32_t amount;
  };
  // A place that the program jumps back to.
  struct LoopHead {
    std::vector<uint64_t> state;  // of the machine, times relative
    uint64_t at = kNever;         // the sequencer's clock
    size_t way = 0;               // position in way_
  };

  bool apply_signals(uint64_t now);
  bool run_queue(size_t index, uint64_t now);
  void finish(Queue& queue, uint64_t now);
  bool waits_met(const TimedCommand& command);
  uint64_t earliest(const Queue& queue) const;
  void begin(Queue& queue, uint64_t now);
  bool run_sequencer(uint64_t now);
  bool stalled(uint64_t now);
  // One instruction; false: the sequencer must wait.
  bool execute(uint64_t now);
  bool execute_timed(const spec::ScalarInsn& insn, uint64_t now);
  void branch(const spec::ScalarInsn& insn);
  bool choose(const spec::ScalarInsn& insn);
  bool issue(const TimedCommand& command);
  bool idle() const;
  uint64_t next_due(uint64_t now) const;
  static uint64_t done_of(const Flight& flight);
  void loop_head(size_t word, uint64_t now);
  std::vector<uint64_t> snapshot(uint64_t now) const;
  bool repeat_way(size_t way, size_t way_end);
  bool repeat_command(const TimedCommand& command, size_t& way, size_t way_end);

  TimedProgram& program_;
  const spec::BoardParams& board_;
  TimedFabric& fabric_;
  const Setup setup_;
  std::array<Queue, spec::kQueueCount> queues_;
  // By queue: no command of it starts or is done before that cycle, unless a semaphore, the end of
  // a transfer or a new command comes, which set it anew.
  std::array<uint64_t, spec::kQueueCount> due_;
  std::array<uint32_t, 256> semaphore_{};
  std::deque<Pending> pending_;
  TimedScalars scalars_;
  size_t pc_ = 0;
  uint64_t time_;
  bool charged_ = false;
  Stall stall_ = Stall::kNone;
  uint8_t full_queue_ = 0;
  int inbound_ = 0;
  uint64_t now_ = 0, wake_, end_ = 0;
  bool ended_ = false, differs_ = false, looped_ = false;
  uint64_t steps_ = 0, commands_ = 0;
  Work work_;
  std::unordered_map<size_t, uint32_t> choices_;  // branches on unknown values, by word
  std::unordered_map<size_t, LoopHead> heads_;
  std::vector<uint32_t> way_;  // what branches did and whom transfers went to
  // Of the loop that looped() means: its head, its period, and the way of the period.
  size_t loop_word_ = 0, loop_way_ = 0;
  uint64_t period_ = 0, skipped_ = 0;
};

}  // namespace tpu::compiler
