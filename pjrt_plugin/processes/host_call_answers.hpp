// Answers host calls of launches on the board of another process, on a thread of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <unordered_map>

#include "processes/wire/frame.hpp"
#include "sync/mutex.hpp"
#include "tpu/executable.hpp"

namespace tpu::pjrt {

/// Never destroyed.
class HostCallAnswers {
 public:
  using Send = std::function<void(const wire::FrameT& frame)>;
  explicit HostCallAnswers(Send send);
  HostCallAnswers(const HostCallAnswers&) = delete;
  HostCallAnswers& operator=(const HostCallAnswers&) = delete;
  ~HostCallAnswers() = delete;

  /// Calls of this launch go to the handler, until it is over.
  void begin(uint64_t launch, driver::HostCallHandler handler);
  void end(uint64_t launch);

  void ask(wire::HostCallT question);

 private:
  void run();
  wire::HostCallEndT answer_of(const wire::HostCallT& question);

  const Send send_;
  base::Mutex mutex_;
  base::CondVar asked_;
  std::deque<wire::HostCallT> questions_ TPU_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, driver::HostCallHandler> handlers_ TPU_GUARDED_BY(mutex_);
};

}  // namespace tpu::pjrt
