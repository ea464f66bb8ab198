// Waiters: the threads that wait and let simulated time pass themselves. The completion thread
// leaves to them what is in flight, and goes on when the last of them has left. Needs no lock.
#pragma once

#include <atomic>
#include <functional>

namespace tpu::driver {

class Waiters {
 public:
  /// `go_on` is called, by any thread, when the last of them leaves what was left to them.
  explicit Waiters(std::function<void()> go_on) : go_on_(std::move(go_on)) {}

  /// False: there are none who could do it.
  bool leave_to_them();
  /// What was left to them is over.
  void done() { left_to_them_ = false; }

  /// A thread that lets simulated time pass until what it waits for is there.
  class Waiter {
   public:
    explicit Waiter(Waiters& all) : all_(all) { ++all_.count_; }
    ~Waiter() { all_.leave(); }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    /// While one lives, the thread sleeps.
    class Pause {
     public:
      explicit Pause(const Waiter& waiter) : waiter_(waiter) { waiter_.all_.leave(); }
      ~Pause() { ++waiter_.all_.count_; }
      Pause(const Pause&) = delete;
      Pause& operator=(const Pause&) = delete;

     private:
      const Waiter& waiter_;
    };

   private:
    Waiters& all_;
  };

 private:
  void leave();

  const std::function<void()> go_on_;
  std::atomic<int> count_{0};
  std::atomic<bool> left_to_them_{false};
};

}  // namespace tpu::driver
