// Session: one process that uses the board of this one. Three threads: one receives, one does the
// calls in their order, one sends. What the process has on the board goes with the session.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "processes/board_calls.hpp"
#include "sync/mutex.hpp"

namespace tpu::pjrt {

class Session {
 public:
  /// Throws std::system_error when there can be no more threads.
  Session(std::shared_ptr<FrameSocket> socket, SessionHost& host);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  /// Ends it.
  ~Session();

  bool over() const { return over_; }

 private:
  void start();
  void join();
  void receive_all();
  void serve_all();
  void serve(ReceivedFrame& received);
  void close(const std::string& why);

  const std::shared_ptr<FrameSocket> socket_;
  const std::shared_ptr<FrameQueue> out_;
  const std::shared_ptr<HostCallWaits> host_calls_;

  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<ReceivedFrame> received_ TPU_GUARDED_BY(mutex_);
  size_t received_bytes_ TPU_GUARDED_BY(mutex_) = 0;
  bool closed_ TPU_GUARDED_BY(mutex_) = false;
  std::string why_ TPU_GUARDED_BY(mutex_);

  BoardCalls calls_;  // of the thread that does them
  std::atomic<bool> over_{false};
  std::thread receiver_, server_, sender_;
};

}  // namespace tpu::pjrt
