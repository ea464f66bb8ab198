#include "processes/session.hpp"

#include <fmt/format.h>

#include <utility>

#include "processes/wire/failure.hpp"

namespace tpu::pjrt {
namespace {

// Calls that wait; a process has few under way, as it waits for the answers.
constexpr size_t kMostCalls = size_t{1} << 20;

}  // namespace

Session::Session(std::shared_ptr<FrameSocket> socket, SessionHost& host)
    : socket_(std::move(socket)),
      out_(std::make_shared<FrameQueue>(socket_)),
      host_calls_(std::make_shared<HostCallWaits>(out_)),
      calls_(host, out_, host_calls_),
      receiver_([this] { receive(); }),
      server_([this] { serve(); }),
      sender_([this] { out_->run(); }) {}

Session::~Session() {
  socket_->shut_down();
  receiver_.join();
  server_.join();
  sender_.join();
}

void Session::end(const std::string& why) {
  socket_->shut_down();
  host_calls_->close();
  const base::MutexLock lock(mutex_);
  if (!closed_) {
    closed_ = true;
    why_ = why;
  }
  changed_.notify_all();
}

void Session::receive() {
  try {
    while (auto received = socket_->receive()) {
      if (auto* answer = received->frame.body.AsHostCallEnd()) {
        host_calls_->end(std::move(*answer));  // the board waits; calls may wait for the board
        continue;
      }
      const base::MutexLock lock(mutex_);
      if (received_.size() >= kMostCalls) {
        throw driver::Error(driver::ErrorCode::kResourceExhausted,
                            fmt::format("more than {} calls at a time", kMostCalls));
      }
      received_.push_back(std::move(*received));
      changed_.notify_all();
    }
    end(out_->overflowed() ? "it did not read what was sent to it" : "");
  } catch (const std::exception& error) {
    end(error.what());
  }
}

void Session::serve() {
  for (;;) {
    ReceivedFrame received;
    {
      const base::MutexLock lock(mutex_);
      while (received_.empty() && !closed_) {
        changed_.wait(mutex_);
      }
      if (closed_) {
        break;
      }
      received = std::move(received_.front());
      received_.pop_front();
    }
    try {
      serve(received);
    } catch (const std::exception& error) {
      end(error.what());
    }
  }
  std::string why;
  {
    const base::MutexLock lock(mutex_);
    why = why_;
  }
  calls_.end(why);
  out_->close();
  over_ = true;
}

// A call that nobody waits for must not fail.
void Session::serve(ReceivedFrame& received) {
  wire::AnswerT made;
  if (received.frame.number == 0) {
    made = calls_.answer(received);
    return;
  }
  try {
    made = calls_.answer(received);
  } catch (...) {
    made.failure = failure_of_exception();
  }
  out_->post(frame_of(std::move(made), received.frame.number));
}

}  // namespace tpu::pjrt
