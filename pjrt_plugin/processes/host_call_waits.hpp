// Host calls of launches that a process answers: the board waits until it has, or has ended.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "processes/frame_queue.hpp"
#include "sync/mutex.hpp"
#include "tpu/executable.hpp"

namespace tpu::pjrt {

class HostCallWaits {
 public:
  explicit HostCallWaits(std::shared_ptr<FrameQueue> out) : out_(std::move(out)) {}

  /// Answers a call of the launch with this number. Throws driver::Error: what the process answers,
  /// Unavailable when it has ended.
  void ask(uint64_t launch, const driver::HostCallInfo& call, size_t partition,
           std::span<std::byte> bytes);
  /// The answer of the process.
  void end(wire::HostCallEndT&& answer);
  /// The process has ended.
  void close();

 private:
  const std::shared_ptr<FrameQueue> out_;
  base::Mutex mutex_;
  base::CondVar changed_;
  uint64_t last_ TPU_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::unique_ptr<wire::HostCallEndT>> calls_
      TPU_GUARDED_BY(mutex_);  // null: no answer yet
  bool closed_ TPU_GUARDED_BY(mutex_) = false;
};

}  // namespace tpu::pjrt
