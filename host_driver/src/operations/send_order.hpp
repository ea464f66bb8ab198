// SendOrder: operations that wait at the host for events that the rings do not order (events of the
// host's own, copies from other cores, and operations that wait here themselves). They are sent in
// the order of the calls, by the thread that waits or submits next; what uses memory that an
// earlier one is going to use waits behind it. Guarded by the board lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "src/lock/board_lock.hpp"
#include "src/operations/operations.hpp"

namespace tpu::driver {

class SendOrder {
 public:
  /// `must_not_wait`: this thread answers a host call, so that nothing may be sent that could wait
  /// for room.
  SendOrder(Operations& operations, const Health& health, std::function<bool()> must_not_wait)
      : operations_(operations), health_(health), must_not_wait_(std::move(must_not_wait)) {}

  /// Launches for which `held` is true wait as well.
  void hold_launches(std::function<bool(const Operation&)> held) TPU_REQUIRES(board_lock) {
    held_ = std::move(held);
  }

  /// Calls `send`, which adds the operation's commands, at once or when nothing is in front of it.
  /// Its place among the operations is that of this call: what other threads submit while it waits
  /// for room comes behind it.
  void send_in_order(const std::shared_ptr<Operation>& op, std::function<void()> send)
      TPU_REQUIRES(board_lock);
  /// Sends what waits no more.
  void send_waiting() TPU_REQUIRES(board_lock);
  /// An operation up to number `last` waits here.
  bool any(uint64_t last = UINT64_MAX) const TPU_REQUIRES(board_lock);
  /// All that waits ends with that.
  void fail_all(const ErrorPtr& error) TPU_REQUIRES(board_lock);

 private:
  struct Waiting {
    std::shared_ptr<Operation> op;
    std::function<void()> send;
  };
  bool waits(const Operation& op, size_t earlier) const TPU_REQUIRES(board_lock);
  void send_now(const std::shared_ptr<Operation>& op, const std::function<void()>& send)
      TPU_REQUIRES(board_lock);

  Operations& operations_;
  const Health& health_;
  const std::function<bool()> must_not_wait_;
  std::function<bool(const Operation&)> held_;  // may be empty
  std::vector<Waiting> waiting_;                // in the order of the calls
  bool sending_ = false;                        // a call of send_waiting() is on its way
};

}  // namespace tpu::driver
