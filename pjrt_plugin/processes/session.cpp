#include "processes/session.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "processes/wire/failure.hpp"

namespace tpu::pjrt {
namespace {

// Calls that wait; a process has few under way, as it waits for the answers.
constexpr size_t kMostCalls = size_t{1} << 20;
constexpr size_t kMostCallBytes = size_t{256} << 20;
// Without the name of the code, which driver::Error puts in front.
std::string text_of_exception() { return failure_of_exception()->message; }

// For the process to read why its connection ends.
constexpr std::chrono::seconds kFarewell{1};

}  // namespace

Session::Session(std::shared_ptr<FrameSocket> socket, SessionHost& host)
    : socket_(std::move(socket)),
      out_(std::make_shared<FrameQueue>(socket_)),
      host_calls_(std::make_shared<HostCallWaits>(out_)),
      calls_(host, out_, host_calls_) {
  try {
    start();
  } catch (...) {
    join();
    throw;
  }
}

Session::~Session() { join(); }

void Session::start() {
  receiver_ = std::thread([this] { receive_all(); });
  server_ = std::thread([this] { serve_all(); });
  sender_ = std::thread([this] { out_->run(); });
}

void Session::join() {
  socket_->shut_down();
  out_->close();
  for (std::thread* each : {&receiver_, &server_, &sender_}) {
    if (each->joinable()) {
      each->join();
    }
  }
}

// The first reason counts. Without one, the process has closed the connection.
void Session::close(const std::string& why) {
  const base::MutexLock lock(mutex_);
  if (!closed_) {
    closed_ = true;
    why_ = why;
    host_calls_->close();
    socket_->stop_receiving();
    if (!why.empty()) {
      wire::AnswerT farewell;
      farewell.failure = failure_of(driver::Error(driver::ErrorCode::kUnavailable, why));
      out_->post_last(frame_of(std::move(farewell)));
    }
  }
  changed_.notify_all();
}

void Session::receive_all() {
  try {
    while (auto received = socket_->receive()) {
      if (auto* answer = received->frame.body.AsHostCallEnd()) {
        host_calls_->end(std::move(*answer));  // the board waits; calls may wait for the board
        continue;
      }
      const base::MutexLock lock(mutex_);
      received_bytes_ += received->bytes;
      if (received_.size() >= kMostCalls || received_bytes_ > kMostCallBytes) {
        throw driver::Error(
            driver::ErrorCode::kResourceExhausted,
            fmt::format("{} calls of {} bytes wait, expected {} of {} at most",
                        received_.size() + 1, received_bytes_, kMostCalls, kMostCallBytes));
      }
      received_.push_back(std::move(*received));
      changed_.notify_all();
    }
    close(out_->overflowed() ? "it did not read what was sent to it" : "");
  } catch (...) {
    close(text_of_exception());
  }
}

void Session::serve_all() {
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
      received_bytes_ -= received.bytes;
    }
    try {
      serve(received);
    } catch (...) {
      close(text_of_exception());
    }
  }
  std::string why;
  {
    const base::MutexLock lock(mutex_);
    why = why_;
  }
  calls_.end(why);
  out_->close();
  if (!why.empty()) {
    static_cast<void>(out_->wait_for_end(kFarewell));
  }
  socket_->shut_down();
  over_ = true;
}

// A call that nobody waits for must not fail.
void Session::serve(ReceivedFrame& received) {
  const uint64_t number = received.frame.number;
  if (number == 0) {
    calls_.answer(received, [](const wire::AnswerT& /*made*/) {});
    return;
  }
  const auto tell = [out = out_, number](wire::AnswerT made) {
    out->post(frame_of(std::move(made), number));
  };
  try {
    calls_.answer(received, tell);
  } catch (...) {
    wire::AnswerT refused;
    refused.failure = failure_of_exception();
    tell(std::move(refused));
  }
}

}  // namespace tpu::pjrt
