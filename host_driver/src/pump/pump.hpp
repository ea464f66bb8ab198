// Pump: what the thread does that waits: it lets simulated time pass until an interrupt, takes
// completions, answers host calls, sends what may be sent now, recovers from faults, and looks
// again. Guarded by the board lock, which it may hand over.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "src/completions/completions.hpp"
#include "src/feeds/feeds.hpp"
#include "src/host_calls/host_call_server.hpp"
#include "src/lock/board_lock.hpp"
#include "src/operations/send_order.hpp"
#include "src/pump/board_run.hpp"
#include "src/pump/time_limit.hpp"
#include "src/recovery/recovery.hpp"

namespace tpu::driver {

class Pump {
 public:
  /// How a thread that lets simulated time pass waits.
  struct How {
    bool sleeps = true;   ///< for the next batch of input, when nothing else is left
    bool to_end = false;  ///< for operations to end; else for room too, which each command gives
  };
  /// `transport`: null when the board is closed.
  Pump(const std::unique_ptr<Transport>& transport, Turn& turn, Health& health, HostNews& news,
       Devices& devices, SendOrder& order, Feeds& feeds, HostCallServer& calls,
       Completions& completions, Recovery& recovery, BoardRun& run, TimeLimit& limit,
       std::function<void(const ErrorPtr&)> break_board)
      : transport_(transport),
        turn_(turn),
        health_(health),
        news_(news),
        devices_(devices),
        order_(order),
        feeds_(feeds),
        calls_(calls),
        completions_(completions),
        recovery_(recovery),
        run_(run),
        limit_(limit),
        break_board_(std::move(break_board)) {}

  /// True when something was completed. Throws only for who answers a host call and must not wait:
  /// what fails here fails the board.
  bool pump(Deadline deadline, How how) TPU_REQUIRES(board_lock);
  /// Nothing is in flight, and a launch waits for a batch.
  bool starves() const TPU_REQUIRES(board_lock) { return starves_; }

  /// The host is busy for that long before its call takes effect, and the board goes on meanwhile.
  /// It stops at its interrupts as ever. While a host call is answered no simulated time passes:
  /// the calls of who answers cost none, those of others come behind the answer.
  void spend_host_time(uint64_t cycles) TPU_REQUIRES(board_lock);
  /// The same of a host that makes input ready.
  void prepare_input(uint64_t cycles) TPU_REQUIRES(board_lock);

 private:
  bool pump_once(Deadline deadline, How how) TPU_REQUIRES(board_lock);
  bool await_batch(Deadline deadline, bool sleeps) TPU_REQUIRES(board_lock);

  const std::unique_ptr<Transport>& transport_;
  Turn& turn_;
  Health& health_;
  HostNews& news_;
  Devices& devices_;
  SendOrder& order_;
  Feeds& feeds_;
  HostCallServer& calls_;
  Completions& completions_;
  Recovery& recovery_;
  BoardRun& run_;
  TimeLimit& limit_;
  const std::function<void(const ErrorPtr&)> break_board_;
  bool starves_ = false;
};

}  // namespace tpu::driver
