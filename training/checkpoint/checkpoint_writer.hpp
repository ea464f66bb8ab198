// Writes checkpoints on a thread of its own, so that the next steps run meanwhile. One at a time:
// no more than one copy of the state waits for the disk.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <optional>

#include "checkpoint/checkpoint.hpp"

namespace tpu::training {

class CheckpointWriter {
 public:
  /// `write` is called on the other thread.
  explicit CheckpointWriter(std::function<void(const Checkpoint&)> write);
  /// Waits for what is being written.
  ~CheckpointWriter() = default;
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  struct Outcome {
    int64_t step = 0;
    double seconds = 0;
    std::exception_ptr error;  ///< nullptr: it is on the disk
  };

  /// Only when idle(): take() has given the outcome of the one before.
  void start(Checkpoint checkpoint);
  bool idle() const { return !running_.valid(); }
  /// What has become of the one that was started, once; nothing while it is written, or when there
  /// is none.
  std::optional<Outcome> take();
  /// The same, and waits for it.
  std::optional<Outcome> wait();

 private:
  std::function<void(const Checkpoint&)> write_;
  std::future<Outcome> running_;  // of std::async: its destructor waits
};

}  // namespace tpu::training
