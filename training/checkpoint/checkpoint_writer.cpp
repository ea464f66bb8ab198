// One task at a time of std::async; its future says when it has ended.
#include "checkpoint/checkpoint_writer.hpp"

#include <chrono>
#include <utility>

namespace tpu::training {

CheckpointWriter::CheckpointWriter(std::function<void(const Checkpoint&)> write)
    : write_(std::move(write)) {}

void CheckpointWriter::start(Checkpoint checkpoint) {
  running_ = std::async(std::launch::async, [this, made = std::move(checkpoint)] {
    const auto begin = std::chrono::steady_clock::now();
    Outcome outcome{.step = made.step, .seconds = 0, .error = nullptr};
    try {
      write_(made);
    } catch (...) {
      outcome.error = std::current_exception();
    }
    outcome.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return outcome;
  });
}

std::optional<CheckpointWriter::Outcome> CheckpointWriter::take() {
  const bool ready =
      running_.valid() && running_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  return ready ? wait() : std::nullopt;
}

std::optional<CheckpointWriter::Outcome> CheckpointWriter::wait() {
  return running_.valid() ? std::optional(running_.get()) : std::nullopt;
}

}  // namespace tpu::training
