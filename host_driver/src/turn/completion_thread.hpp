// Completion thread (OpenOptions::completion_thread): lets simulated time pass when there is
// something to do and no caller waits, so that events become ready by themselves. It begins when no
// call has come for a while: calls that follow each other take effect at one simulated time and
// need not stop the board.
#pragma once

#include <functional>
#include <memory>
#include <thread>

namespace tpu::driver {

class CompletionThread {
 public:
  /// `let_time_pass` takes what is there, or lets time pass until something is. It holds the board
  /// for one call at a time, so that the thread never keeps one alive. True: there is more to do.
  explicit CompletionThread(std::function<bool()> let_time_pass);
  /// Ends it; on the thread itself when the last handle of the board goes away there.
  ~CompletionThread();
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;

  /// Any thread, any lock: a call or wait is over that left the board something to do.
  void call_is_over();
  /// Any thread, any lock: somebody wants what is on its way, and submits nothing before it comes.
  void begin_at_once();

 private:
  struct State;
  static void service_thread(const std::shared_ptr<State>& state,
                             const std::function<bool()>& let_time_pass);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace tpu::driver
