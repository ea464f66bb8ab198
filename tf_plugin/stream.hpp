// Stream: what follows what on a queue of TensorFlow's. The board keeps the order of arrays by
// itself: a launch waits for its arguments. So a call that moves data starts its work at once, and
// the stream has the events of it, and between them work of the host, which a thread of the
// stream's own does when its turn comes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/runtime.hpp"

namespace tpu::tensorflow {

/// Sets the event, unless the board was closed.
void set_event(const driver::HostEvent& event);

class Stream {
 public:
  /// Throws what failed; then the stream has failed, and goes on.
  using Work = std::function<void()>;

  Stream(const pjrt::Runtime& runtime, int device);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  /// Work that has not been done yet is done all the same, by the thread, which outlives the
  /// stream.
  ~Stream();

  int device() const { return device_; }

  /// Whose streams have the failure of an event.
  enum class Of { kOneCore, kSeveralCores };
  /// What follows waits for `event`. Its failure is the stream's, unless `told` says that the
  /// program is told of it elsewhere.
  void follow(const driver::Event& event, Of of = Of::kOneCore,
              const std::function<bool()>& told = nullptr);
  /// `work` is done behind all that is in the stream: by the thread, in order.
  void call(Work work);
  /// As call(), or at once when nothing is in front of it. It must not wait.
  void call_short(Work work);
  /// Ready when all is done that is in the stream.
  driver::Event reached();
  bool idle() const;

  /// Waits for all that is in the stream now. Throws the first failure of which nobody was told
  /// before the call. Calls that wait at the same time throw the same one.
  void wait();
  /// The first failure of which nobody was told; null: none.
  std::optional<driver::Error> error() const;
  /// A reader of a result on this core was told of this failure: no stream tells of it any more.
  /// What has failed on another core alone, for the same reason, is another failure.
  static void told(const driver::Error& error, int device);
  /// No stream has an error of before any more.
  static void forget_errors();

 private:
  struct State;
  static std::vector<std::shared_ptr<State>> states();  // of all streams
  const pjrt::Runtime& runtime_;
  const int device_;
  const std::shared_ptr<State> state_;  // shared with the thread and with callbacks of events
};

}  // namespace tpu::tensorflow
