// Host port: the one place where host threads and the SystemC kernel meet. A kernel thread of its
// own runs the simulation; a gate process parks it in a mailbox whenever nobody asks for simulated
// time. A call is a piece of code that runs inside the gate process, at the end of the present
// cycle, and may wait for simulated time.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "sync/patience.hpp"

namespace sc_core {
class sc_event;
}

namespace tpu::model {

// The kernel thread ended with an error; every later call ends with the same text.
class KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// This process has had a board already.
class KernelTakenError : public KernelError {
 public:
  using KernelError::KernelError;
};

class HostPort {
 public:
  // Starts the kernel thread, which calls `elaborate` (build all modules; what it returns lives as
  // long as the simulation) and then simulates. Returns when the gate is parked for the first time.
  // Throws KernelError when elaboration fails, KernelTakenError when this process has had a board
  // already: SystemC has one kernel a process.
  explicit HostPort(std::function<std::shared_ptr<void>()> elaborate);
  ~HostPort();  // as close()
  HostPort(const HostPort&) = delete;
  HostPort& operator=(const HostPort&) = delete;

  // Runs `job` in the gate process and returns when it is done; calls of several threads take
  // turns. What the job throws is thrown here. Throws KernelError when the kernel is gone.
  // When it takes longer than `limit` of wall-clock time (0: none), the job is asked to end early;
  // one that is `interruptible` by interrupt() as well.
  // A job that is not interruptible itself can make calls, which are a part of it: nobody else's
  // call comes in between. Their `limit` is not kept.
  void call(const std::function<void()>& job, std::chrono::nanoseconds limit = {},
            bool interruptible = false);

  // From any thread: asks the interruptible job that runs to end early, or else the next one.
  void interrupt();

  // For a job that waits for simulated time: it has been asked to end, and the event that says so.
  bool asked_to_end() const { return asked_to_end_.load(std::memory_order_relaxed); }
  const sc_core::sc_event& asked_event() const;

  // Before the first attend(): what it runs, in the kernel thread, while simulated time stands.
  void on_attention(std::function<void()> serve);
  // From any thread: has it run soon, between two events or while the gate is parked.
  void attend();

  // Stops the simulation and joins the kernel thread; later calls throw.
  void close();

 private:
  struct Gate;
  struct Breaker;

  void kernel_thread(const std::function<std::shared_ptr<void>()>& elaborate);
  const std::function<void()>* take();  // gate side: blocks until a job or close
  void call_inside(const std::function<void()>& job, bool interruptible);
  void serve_attention(std::unique_lock<std::mutex>& lock);
  void reply(std::exception_ptr error);
  void fail(const std::string& text);

  // Hints for the side that looks before it sleeps; the truth is under the mutex.
  std::atomic<bool> posted_{false};
  std::atomic<bool> answered_{false};
  base::Patience gate_patience_;    // of the gate's thread
  base::Patience caller_patience_;  // of the caller whose job it is

  std::atomic<bool> asked_to_end_{false};  // changed under the mutex

  std::mutex mutex_;
  Breaker* breaker_ = nullptr;  // both while the gate lives
  Breaker* attention_breaker_ = nullptr;
  std::condition_variable request_cv_;
  std::condition_variable reply_cv_;
  const std::function<void()>* job_ = nullptr;
  bool busy_ = false;           // a job is posted or runs
  bool done_ = false;           // its reply stands in error_
  bool interruptible_ = false;  // it may be asked to end
  bool interrupted_ = false;    // it, or the next one, is to end
  bool parked_ = false;         // the gate reached its mailbox for the first time
  bool closing_ = false;
  std::function<void()> attention_;
  bool attention_asked_ = false;
  bool ended_ = false;  // the kernel thread is gone
  std::exception_ptr error_;
  std::string end_text_;
  std::exception_ptr start_error_;  // elaboration failed
  std::thread::id kernel_id_;       // since before the gate was parked
  std::thread thread_;
};

}  // namespace tpu::model
