// Host calls: a core whose program stands at one tells so by a completion. The driver moves what
// travels by requests to the core's firmware, has the handler of the launch answer, and lets the
// program go on. The command ring is not used: what is queued there may wait for this very launch.
//   to the host:    told -> transfer -> told -> handler -> go on
//   from the host:  told -> handler -> transfer -> told -> go on
// A call that starts a transfer between HBM and what the program keeps in the host's memory goes on
// immediately. Transfers of a core take place one by one, in the order of their calls; one that
// finishes them goes on when those of its channel are over.
// A call that one partition makes for all: to the host, the others go on at once; from the host,
// all wait for the last one, and get the same bytes. While a handler runs no simulated time passes,
// so that cycles do not depend on how long it takes. Guarded by the board lock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>

#include "src/lock/board_lock.hpp"
#include "src/operations/operations.hpp"
#include "src/transfers/board_memory.hpp"
#include "src/turn/turn.hpp"

namespace tpu::driver {

class HostCallServer {
 public:
  HostCallServer(Devices& devices, CoreRegisters& registers, BoardMemory& memory,
                 const Health& health, Outbox& outbox, Turn& turn, HostNews& news)
      : devices_(devices),
        registers_(registers),
        memory_(memory),
        health_(health),
        outbox_(outbox),
        turn_(turn),
        news_(news) {}

  /// A core has come to host call `number` of its program, or (kCallMoved) to the end of a
  /// transfer. `ticket`: how many completions it has written.
  void add(const Command& command, uint32_t number, uint32_t ticket) TPU_REQUIRES(board_lock);
  /// Goes on with those that were added. True when there was something to do.
  bool serve() TPU_REQUIRES(board_lock);

  /// This thread computes an answer: it must not wait for the board.
  bool answers_here() const TPU_REQUIRES(board_lock);
  /// Waits while another thread computes an answer; false: none does. Throws FailedPrecondition
  /// for the thread itself.
  bool await_answer(Deadline deadline) TPU_REQUIRES(board_lock);

 private:
  struct Told {
    std::shared_ptr<Operation> op;
    size_t part;
    uint32_t number, ticket;
  };
  void call_told(const std::shared_ptr<Operation>& op, size_t part) TPU_REQUIRES(board_lock);
  void call_moved(const std::shared_ptr<Operation>& op, size_t part) TPU_REQUIRES(board_lock);
  void start_beside(const std::shared_ptr<Operation>& op, size_t part) TPU_REQUIRES(board_lock);
  void finish_beside(Operation& op, size_t part) TPU_REQUIRES(board_lock);
  void ask_transfer(Operation& op, size_t part, HostTransfer transfer) TPU_REQUIRES(board_lock);
  void begin_transfer(Operation& op, size_t part) TPU_REQUIRES(board_lock);
  void go_on(const Operation& op, size_t part) TPU_REQUIRES(board_lock);
  void answer_call(const std::shared_ptr<Operation>& op, size_t part) TPU_REQUIRES(board_lock);
  ErrorPtr ask_handler(HostCallHandler handler, const HostCallInfo& info, int device, size_t part,
                       std::span<std::byte> array) TPU_REQUIRES(board_lock);
  std::shared_ptr<StagingRange> stage(Operation& op, size_t part, uint64_t bytes)
      TPU_REQUIRES(board_lock);
  void fail_call(Operation& op, size_t part, const ErrorPtr& error) TPU_REQUIRES(board_lock);

  Devices& devices_;
  CoreRegisters& registers_;
  BoardMemory& memory_;
  const Health& health_;
  Outbox& outbox_;
  Turn& turn_;
  HostNews& news_;
  std::deque<Told> told_;
  bool answering_ = false;  // a thread computes an answer: no simulated time passes
};

}  // namespace tpu::driver
