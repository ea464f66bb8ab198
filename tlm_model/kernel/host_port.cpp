// Host port: mailbox, gate process and kernel thread. SystemC is entered on the kernel thread
// alone.
#include "kernel/host_port.hpp"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <systemc>
#include <utility>

// SystemC's library wants this symbol. The simulation is started by kernel_thread(), so it has
// nothing to do; a program with an sc_main of its own replaces it.
__attribute__((weak)) int sc_main(int /*argc*/, char* /*argv*/[]) { return 0; }

namespace tpu::model {
namespace {

std::atomic<bool> kernel_used{false};

}  // namespace

// Wakes the gate process from another thread while the simulation runs. The event is notified in
// the kernel thread, between two delta cycles; no other process sees it.
struct HostPort::Breaker : sc_core::sc_prim_channel {
  explicit Breaker(const char* name) : sc_prim_channel(name) {}
  void request() { async_request_update(); }
  void update() override { event.notify(sc_core::SC_ZERO_TIME); }
  sc_core::sc_event event;
};

struct HostPort::Gate : sc_core::sc_module {
  SC_HAS_PROCESS(Gate);
  Gate(sc_core::sc_module_name name, HostPort& owner) : sc_module(name), port(owner) {
    SC_THREAD(gate_thread);
    set_stack_size(0x40000);
    SC_METHOD(attention_method);
    sensitive << attention.event;
    dont_initialize();
    const std::lock_guard lock(port.mutex_);
    port.breaker_ = &breaker;
    port.attention_breaker_ = &attention;
  }
  ~Gate() override {
    const std::lock_guard lock(port.mutex_);
    port.breaker_ = port.attention_breaker_ = nullptr;
  }

  void attention_method() {
    std::unique_lock lock(port.mutex_);
    port.serve_attention(lock);
  }

  void gate_thread() {
    for (;;) {
      while (sc_core::sc_pending_activity_at_current_time()) {
        wait(sc_core::SC_ZERO_TIME);  // the cycle ends before the host sees it
      }
      const std::function<void()>* job = port.take();
      if (job == nullptr) {
        sc_core::sc_stop();
        return;
      }
      std::exception_ptr error;
      try {
        (*job)();
      } catch (const sc_core::sc_unwind_exception&) {
        throw;
      } catch (...) {
        error = std::current_exception();
      }
      port.reply(error);
    }
  }

  HostPort& port;
  Breaker breaker{"breaker"};
  Breaker attention{"attention"};
};

const sc_core::sc_event& HostPort::asked_event() const { return breaker_->event; }

HostPort::HostPort(std::function<std::shared_ptr<void>()> elaborate) {
  if (kernel_used.exchange(true)) {
    throw KernelTakenError(
        "this process has had a simulated board already: SystemC has one kernel a process; use "
        "another process for another board");
  }
  try {
    thread_ = std::thread([this, make = std::move(elaborate)] { kernel_thread(make); });
  } catch (...) {
    kernel_used = false;  // nothing of the kernel has been used
    throw;
  }
  std::unique_lock lock(mutex_);
  reply_cv_.wait(lock, [this] { return parked_ || ended_; });
  if (ended_) {
    const std::string text = end_text_;
    lock.unlock();
    thread_.join();
    if (start_error_) {
      std::rethrow_exception(start_error_);
    }
    throw KernelError(text);
  }
}

HostPort::~HostPort() { close(); }

namespace {

// Files of a run may be pipes: a reader that goes away is an error of the write, not the end of the
// process. Threads that the board starts have the mask too.
void ignore_broken_pipes() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

void HostPort::kernel_thread(const std::function<std::shared_ptr<void>()>& elaborate) {
  std::string text = "the board is closed";
  kernel_id_ = std::this_thread::get_id();
  ignore_broken_pipes();
  try {
    sc_core::sc_report_handler::set_actions("/OSCI/SystemC", sc_core::SC_DO_NOTHING);
    sc_core::sc_report_handler::set_actions(sc_core::SC_INFO, sc_core::SC_DO_NOTHING);
    sc_core::sc_report_handler::set_actions(sc_core::SC_WARNING, sc_core::SC_DO_NOTHING);
    sc_core::sc_report_handler::set_actions(sc_core::SC_ERROR, sc_core::SC_THROW);
    sc_core::sc_report_handler::set_actions(sc_core::SC_FATAL, sc_core::SC_THROW);
    Gate gate("host_port", *this);
    std::shared_ptr<void> board;
    try {
      board = elaborate();
    } catch (...) {
      start_error_ = std::current_exception();
      throw;
    }
    sc_core::sc_start();
    if (sc_core::sc_get_status() != sc_core::SC_STOPPED) {
      text = "the simulation ran out of events while the host waited for it";
    }
    fail(text);
  } catch (const sc_core::sc_report& report) {
    fail(std::string("simulation error: ") + report.what());
  } catch (const std::exception& error) {
    fail(std::string("simulation error: ") + error.what());
  } catch (...) {
    fail("simulation error: an exception of unknown type");
  }
}

void HostPort::fail(const std::string& text) {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  end_text_ = text;
  answered_.store(true, std::memory_order_release);
  reply_cv_.notify_all();
}

const std::function<void()>* HostPort::take() {
  std::unique_lock lock(mutex_);
  if (!parked_) {
    parked_ = true;
    reply_cv_.notify_all();
  }
  lock.unlock();
  gate_patience_.look_for([this] { return posted_.load(std::memory_order_acquire); });
  lock.lock();
  const auto posted = [this] { return job_ != nullptr || closing_; };
  while (!posted()) {
    request_cv_.wait(lock, [&] { return posted() || attention_asked_; });
    serve_attention(lock);
  }
  gate_patience_.came();
  posted_.store(false, std::memory_order_relaxed);
  return std::exchange(job_, nullptr);  // null: it closes
}

void HostPort::on_attention(std::function<void()> serve) {
  const std::lock_guard lock(mutex_);
  attention_ = std::move(serve);
}

void HostPort::attend() {
  const std::lock_guard lock(mutex_);
  attention_asked_ = true;
  request_cv_.notify_all();
  if (attention_breaker_ != nullptr) {
    attention_breaker_->request();
  }
}

void HostPort::serve_attention(std::unique_lock<std::mutex>& lock) {
  while (std::exchange(attention_asked_, false)) {
    lock.unlock();
    attention_();
    lock.lock();
  }
}

void HostPort::reply(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  error_ = std::move(error);
  done_ = true;
  reply_cv_.notify_all();
  answered_.store(true, std::memory_order_release);  // last, who looks wants the mutex
}

void HostPort::interrupt() {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  if (interruptible_ && breaker_ != nullptr) {
    asked_to_end_.store(true, std::memory_order_relaxed);
    breaker_->request();
  }
}

void HostPort::call(const std::function<void()>& job, std::chrono::nanoseconds limit,
                    bool interruptible) {
  if (std::this_thread::get_id() == kernel_id_) {
    return call_inside(job, interruptible);
  }
  std::unique_lock lock(mutex_);
  reply_cv_.wait(lock, [this] { return ended_ || closing_ || !busy_; });
  if (ended_ || closing_) {
    throw KernelError(ended_ ? end_text_ : "the board is closed");
  }
  busy_ = true;
  done_ = false;
  job_ = &job;
  interruptible_ = interruptible;
  asked_to_end_.store(interruptible && interrupted_, std::memory_order_relaxed);
  answered_.store(false, std::memory_order_relaxed);
  request_cv_.notify_one();
  posted_.store(true, std::memory_order_release);  // last, who looks wants the mutex
  lock.unlock();
  caller_patience_.look_for([this] { return answered_.load(std::memory_order_acquire); });
  lock.lock();
  const auto over = [this] { return done_ || ended_; };
  if (limit.count() != 0 && !reply_cv_.wait_for(lock, limit, over) && breaker_ != nullptr) {
    asked_to_end_.store(true, std::memory_order_relaxed);
    breaker_->request();
  }
  reply_cv_.wait(lock, over);
  caller_patience_.came();
  busy_ = false;
  if (interruptible) {
    interruptible_ = interrupted_ = false;
  }
  reply_cv_.notify_all();
  if (!done_) {
    throw KernelError(end_text_);
  }
  if (error_) {
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

void HostPort::call_inside(const std::function<void()>& job, bool interruptible) {
  if (!interruptible) {
    return job();
  }
  {
    const std::lock_guard lock(mutex_);
    interruptible_ = true;
    asked_to_end_.store(interrupted_, std::memory_order_relaxed);
  }
  const auto forget = [this] {
    const std::lock_guard lock(mutex_);
    interruptible_ = interrupted_ = false;
    asked_to_end_.store(false, std::memory_order_relaxed);
  };
  try {
    job();
  } catch (...) {
    forget();
    throw;
  }
  forget();
}

void HostPort::close() {
  {
    std::unique_lock lock(mutex_);
    closing_ = true;  // before it waits, so that no further call comes first
    reply_cv_.wait(lock, [this] { return ended_ || !busy_; });
    posted_.store(true, std::memory_order_release);
    request_cv_.notify_all();
    reply_cv_.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

}  // namespace tpu::model
