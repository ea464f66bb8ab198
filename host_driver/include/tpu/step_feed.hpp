// StepFeed: what goes into and comes out of the steps of a launch while it runs. Each step takes a
// batch of its own from the host (infeed) and gives the host results of its own (outfeed); the
// board moves both by itself, two steps deep, so that a batch is uploaded while the step before it
// runs. Copies share one queue and may outlive the board; all calls may come from any thread. Every
// call on an empty handle throws InvalidArgument.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tpu/event.hpp"
#include "tpu/types.hpp"

namespace tpu::driver {

struct StepFeedState;

/// The queues of a launch with RunOptions::infeed or outfeed, or an empty handle. When the last
/// copy goes away, the launch is told that no more batches come.
class StepFeed {
 public:
  StepFeed() = default;

  bool valid() const { return owner_ != nullptr; }  ///< false for an empty handle

  /// Gives the next step its batch: global arrays, in the order of RunOptions::infeed. The bytes
  /// are copied before the call returns, and it waits for nothing: each batch that is not on the
  /// board yet takes host memory, so whoever feeds many waits for the event of an earlier one. The
  /// event is ready when the batch is in the memory of all cores, and fails as the launch does.
  /// Throws InvalidArgument (number, type, shape or bytes of the arrays; a batch more than there
  /// are steps), FailedPrecondition (after end(), a closed board), ResourceExhausted (memory of the
  /// host), Unavailable (the board has broken).
  Event feed(const std::vector<HostView>& batch) const;

  /// Says that no more batches come. A launch that needs more ends with InvalidArgument when it
  /// comes to the step that has none; what it has done until then is lost.
  void end() const;

  /// Ready when what step `step` gives is on the host; fails as the launch does. Throws
  /// InvalidArgument when there is no such step or no outfeed.
  Event ready(uint32_t step) const;

  /// What step `step` gives, global arrays in the order of RunOptions::outfeed; of replicated
  /// results the first core's. Waits, and hands it out once: then FailedPrecondition. Throws what
  /// ready() and its event throw.
  std::vector<HostArray> take(uint32_t step) const;

 private:
  friend struct Access;
  struct Owner;
  explicit StepFeed(std::shared_ptr<Owner> owner) : owner_(std::move(owner)) {}
  std::shared_ptr<Owner> owner_;
};

}  // namespace tpu::driver
