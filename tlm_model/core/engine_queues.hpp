// The command queues of a core as its sequencer drives them together.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/ports.hpp"

namespace tpu::model {

class EngineQueues {
 public:
  using Queues = std::array<CommandQueueIf*, spec::kQueueCount>;  // null: engine missing

  void connect(const Queues& queues) { queues_ = queues; }
  // Null where the core lacks the engine.
  CommandQueueIf* at(size_t queue) const {
    return queue < queues_.size() ? queues_[queue] : nullptr;
  }
  bool idle() const {
    return std::ranges::all_of(
        queues_, [](const CommandQueueIf* queue) { return queue == nullptr || queue->idle(); });
  }
  // Progress of all notifies the task, for this reason; null: nobody.
  void watch(Task* task, uint32_t reason) const {
    each([task, reason](CommandQueueIf& queue) { queue.watch(task, reason); });
  }
  void stop() const {
    each([](CommandQueueIf& queue) { queue.stop(); });
  }
  // What started commands do to data is done when this returns.
  void settle_data() const {
    each([](CommandQueueIf& queue) { queue.settle_data(); });
  }
  void resume() const {
    each([](CommandQueueIf& queue) { queue.resume(); });
  }

 private:
  template <class Action>
  void each(const Action& action) const {
    for (CommandQueueIf* const queue : queues_) {
      if (queue != nullptr) {
        action(*queue);
      }
    }
  }

  Queues queues_{};
};

}  // namespace tpu::model
