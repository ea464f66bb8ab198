// Feeds: infeed and outfeed of launches, step by step. What the host gives waits in the queues of a
// StepFeedState until it goes to the rings; a few steps are there at a time. Guarded by the board
// lock.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/feeds/step_feed_state.hpp"
#include "src/lock/board_lock.hpp"
#include "src/operations/board_handles.hpp"
#include "src/operations/operations.hpp"
#include "src/transfers/board_memory.hpp"
#include "src/turn/host_news.hpp"

namespace tpu::driver {

class Feeds {
 public:
  Feeds(Devices& devices, CoreRegisters& registers, Operations& operations, BoardMemory& memory,
        const BoardHandles& handles, const Health& health, Outbox& outbox, HostNews& news)
      : devices_(devices),
        registers_(registers),
        operations_(operations),
        memory_(memory),
        handles_(handles),
        health_(health),
        outbox_(outbox),
        news_(news) {}

  /// Checks what the options feed, and makes its queues; null when that is nothing.
  std::shared_ptr<StepFeedState> make(const std::shared_ptr<Operation>& launch,
                                      const RunOptions& options) TPU_REQUIRES(board_lock);
  /// The launch is on the rings, the last of those that are.
  void queue(const Operation& launch) TPU_REQUIRES(board_lock);
  /// The launch has ended. When it did well, its last results may not have been asked for yet.
  void end(StepFeedState& feed, const ErrorPtr& error) TPU_REQUIRES(board_lock);
  /// The launch is sent again, and no step has run: nor has any batch been used up.
  void rewind(StepFeedState& feed) TPU_REQUIRES(board_lock);
  /// Copies of steps, of all launches, that can go to the rings. Waits for nothing.
  void send() TPU_REQUIRES(board_lock);
  /// Whether a launch on the rings of the same cores still has copies of steps to send. The
  /// firmware looks a few commands ahead: it might not see copies that come after a launch that
  /// waits for its turn. Both launches would then wait forever.
  bool delay(const Operation& launch) const TPU_REQUIRES(board_lock);
  /// No launch takes batches or gives results.
  bool empty() const TPU_REQUIRES(board_lock) { return feeds_.empty(); }

  /// The first launch whose next step waits for a batch that the host has not given.
  std::shared_ptr<Operation> starving() TPU_REQUIRES(board_lock);
  /// Takes a launch that starves off the board. `limit_seconds`: how long it has waited.
  void end_dry(Operation& launch, double limit_seconds) TPU_REQUIRES(board_lock);

  /// Throws InvalidArgument for a batch that is not one of the feed; returns what it has on all
  /// cores. Without the lock.
  static uint64_t check_batch(const StepFeedState& feed, const std::vector<HostView>& batch);
  /// Takes the batch of the next step. Ready when it is on the board.
  std::shared_ptr<EventState> give(StepFeedState& feed, const std::vector<HostView>& batch)
      TPU_REQUIRES(board_lock);
  /// Throws InvalidArgument for a step that gives nothing. Without the lock.
  static void check_step(const StepFeedState& feed, uint32_t step);
  /// Ready when the results of the step are there; null when they were taken.
  std::shared_ptr<EventState> ready(StepFeedState& feed, uint32_t step) TPU_REQUIRES(board_lock);
  /// The results of a step that is ready, once.
  static std::vector<HostArray> take(StepFeedState& feed, uint32_t number) TPU_REQUIRES(board_lock);

 private:
  StepFeedState::Step& step_of(StepFeedState& feed, uint32_t step) TPU_REQUIRES(board_lock);
  void end_step(StepFeedState::Step& step, const ErrorPtr& error) TPU_REQUIRES(board_lock);
  void send_step(const std::shared_ptr<StepFeedState>& feed) TPU_REQUIRES(board_lock);
  static void settle_steps(StepFeedState& feed) TPU_REQUIRES(board_lock);
  StepFeedState::Batch stage_batch(const StepFeedState& feed, const std::vector<HostView>& batch)
      TPU_REQUIRES(board_lock);

  Devices& devices_;
  CoreRegisters& registers_;
  Operations& operations_;
  BoardMemory& memory_;
  const BoardHandles& handles_;
  const Health& health_;
  Outbox& outbox_;
  HostNews& news_;
  std::vector<std::shared_ptr<StepFeedState>> feeds_;  // of launches on the rings, in their order
};

}  // namespace tpu::driver
