// Operations: what was submitted and is not over. An operation begins, gets commands, is sealed,
// and is finished when the last of its commands has been reported. Launches, whose commands are one
// gang, and commands that come back without having run are kept for the recovery of the board.
// Guarded by the board lock.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/events/outbox.hpp"
#include "src/health/health.hpp"
#include "src/lock/board_lock.hpp"
#include "src/operations/devices.hpp"
#include "src/operations/operation.hpp"
#include "src/rings/core_registers.hpp"
#include "src/turn/host_news.hpp"

namespace tpu::driver {

class Operations {
 public:
  /// What operations need of the board around them.
  struct Hooks {
    /// Lets simulated time pass until something is over. May give up the lock.
    std::function<void()> pump;
    std::function<std::shared_ptr<EventState>()> make_event;
    /// A launch is over, and its event not set yet; the error is null when it did well.
    std::function<void(Operation& launch, const ErrorPtr& error)> launch_over;
  };
  Operations(Devices& devices, CoreRegisters& registers, const Health& health, Outbox& outbox,
             HostNews& news, Hooks hooks)
      : devices_(devices),
        registers_(registers),
        health_(health),
        outbox_(outbox),
        news_(news),
        hooks_(std::move(hooks)) {}

  std::shared_ptr<Operation> begin(const std::string& what) TPU_REQUIRES(board_lock);
  /// Puts it behind all that was submitted so far.
  void put_last(Operation& op) TPU_REQUIRES(board_lock) { op.number = ++count_; }
  /// Number of the operation that was submitted last.
  uint64_t last() const TPU_REQUIRES(board_lock) { return count_; }

  /// One more command. Waits for room in its ring.
  void add(const std::shared_ptr<Operation>& op, const std::shared_ptr<Command>& command)
      TPU_REQUIRES(board_lock);
  /// All its commands at once, for which the rings have room.
  void add_all(const std::shared_ptr<Operation>& op,
               const std::vector<std::shared_ptr<Command>>& commands) TPU_REQUIRES(board_lock);
  /// No more commands come.
  void seal(const std::shared_ptr<Operation>& op) TPU_REQUIRES(board_lock);
  /// As seal(), of one that has failed: what is in flight keeps its memory until it is over.
  void abandon(const std::shared_ptr<Operation>& op) TPU_REQUIRES(board_lock);
  /// The commands that it has go to all rings without simulated time in between, so that launches
  /// have one order everywhere. Waits for room.
  void submit_gang(const std::shared_ptr<Operation>& op) TPU_REQUIRES(board_lock);
  /// Writes a command of an operation to its ring again.
  void append(const std::shared_ptr<Command>& command) TPU_REQUIRES(board_lock);

  /// A command has ended: by its completion, or lost with its core.
  void report(const std::shared_ptr<Command>& command, uint16_t status) TPU_REQUIRES(board_lock);
  /// A command that has ended for good; with the last one ends its operation.
  void end_piece(Operation& op, Command& command) TPU_REQUIRES(board_lock);
  /// The one end of every operation. A launch that ends with an error and of which no step can have
  /// run gives its donated buffers back.
  void finish(Operation& op, const ErrorPtr& error) TPU_REQUIRES(board_lock);
  /// All that is on the rings or kept for recovery ends with that.
  void fail_all(const ErrorPtr& error) TPU_REQUIRES(board_lock);

  /// Launches of which all cores have reported, and not all that it went well.
  std::vector<std::shared_ptr<Operation>> take_failed_launches() TPU_REQUIRES(board_lock);
  /// Commands that have not run and may be sent again.
  /// Those of operations in front of number `before`.
  std::vector<std::shared_ptr<Command>> take_retries(uint64_t before = UINT64_MAX)
      TPU_REQUIRES(board_lock);
  /// There are some of either.
  bool needs_recovery() const TPU_REQUIRES(board_lock) {
    return !failed_launches_.empty() || !retries_.empty();
  }
  /// Something of operations up to number `last` is on the rings, or anything needs recovery.
  bool busy(uint64_t last = UINT64_MAX) const TPU_REQUIRES(board_lock) {
    return devices_.in_flight(last) || needs_recovery();
  }

  /// A thread that copies into staging memory leaves the lock to others: nothing of its operation,
  /// up to number `last`, may be on the board yet, and all that was submitted earlier over.
  bool being_sent(uint64_t last = UINT64_MAX) const TPU_REQUIRES(board_lock);
  /// An earlier operation that is being sent uses memory that this one uses, and one of them writes
  /// it.
  bool behind_one_being_sent(const Operation& op) const TPU_REQUIRES(board_lock);

  /// An operation whose commands are being sent, by a thread that may have left the lock to others.
  class Sending {
   public:
    Sending(Operations& all, const Operation& op) : all_(all), op_(op) {
      all_.sending_.push_back(&op_);
    }
    ~Sending() TPU_REQUIRES(board_lock);
    Sending(const Sending&) = delete;
    Sending& operator=(const Sending&) = delete;

   private:
    Operations& all_;
    const Operation& op_;
  };
  /// An operation that commands are added to. It is sealed when this goes out of scope; when that
  /// is by an exception, it has failed: what is out is waited for, but what comes in is dropped.
  class Submission {
   public:
    Submission(Operations& all, const std::string& what) : all_(all), op_(all.begin(what)) {}
    ~Submission() TPU_REQUIRES(board_lock);
    Submission(const Submission&) = delete;
    Submission& operator=(const Submission&) = delete;
    const std::shared_ptr<Operation>& op() const TPU_REQUIRES(board_lock) { return op_; }

   private:
    Operations& all_;
    std::shared_ptr<Operation> op_;
    const Sending sending_{all_, *op_};
    int exceptions_ = std::uncaught_exceptions();
  };

  void visit_state(spec::Archive& archive) { archive(count_); }

 private:
  static void attach(const std::shared_ptr<Operation>& op, const std::shared_ptr<Command>& command);
  void enter(const std::shared_ptr<Command>& command) TPU_REQUIRES(board_lock);
  void ring(const Command& command) TPU_REQUIRES(board_lock);
  void report_launch(const std::shared_ptr<Operation>& op) TPU_REQUIRES(board_lock);

  Devices& devices_;
  CoreRegisters& registers_;
  const Health& health_;
  Outbox& outbox_;
  HostNews& news_;
  const Hooks hooks_;
  uint64_t count_ = 0;  // ever submitted
  std::vector<std::shared_ptr<Operation>> failed_launches_;
  std::vector<std::shared_ptr<Command>> retries_;
  std::vector<const Operation*> sending_;  // some of their commands may be on the rings
};

}  // namespace tpu::driver
