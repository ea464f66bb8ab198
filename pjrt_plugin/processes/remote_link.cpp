#include "processes/remote_link.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <thread>

#include "processes/wire/failure.hpp"

namespace tpu::pjrt {
namespace {

using driver::Error;
using driver::ErrorCode;

}  // namespace

pid_t greet(FrameSocket& socket, wire::HelloT hello) {
  static_cast<void>(socket.send(write_frame(frame_of(std::move(hello), 1))));
  const auto received = socket.receive();
  const wire::AnswerT* answer = received ? received->frame.body.AsAnswer() : nullptr;
  if (answer == nullptr) {
    throw Error(ErrorCode::kUnavailable,
                "the process that has the board ended the connection before it answered; its "
                "standard error may say why");
  }
  if (answer->failure != nullptr) {
    throw error_of(*answer->failure);
  }
  return static_cast<pid_t>(answer->number);
}

RemoteLink::RemoteLink(FrameSocket socket, pid_t server)
    : process_(::getpid()),
      server_(server),
      socket_(std::move(socket)),
      segments_(
          [this](uint64_t number, const SharedMemory* memory) { tell_segment(number, memory); }),
      host_calls_(new HostCallAnswers([this](const wire::FrameT& frame) { tell_frame(frame); })) {
  std::thread([this] { receive_all(); }).detach();
  std::thread([this] { tell_events(); }).detach();
}

void RemoteLink::check_fork() const {
  if (::getpid() != process_) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("this process was forked from process {}, which had opened the board; "
                            "use the start method \"spawn\", or fork before the first use",
                            process_));
  }
}

uint64_t RemoteLink::new_number() {
  check_fork();  // the lock may be held by a thread that the child does not have
  const base::MutexLock lock(mutex_);
  return ++last_number_;
}

void RemoteLink::send(const wire::FrameT& frame, int descriptor) {
  const std::vector<std::byte> bytes = write_frame(frame);
  const base::MutexLock lock(sending_);
  static_cast<void>(socket_.send(bytes, descriptor));  // receive() reports a failure to all calls
}

void RemoteLink::tell_frame(const wire::FrameT& frame) {
  if (::getpid() == process_) {
    send(frame);
  }
}

wire::AnswerT RemoteLink::call_frame(const wire::FrameT& frame) {
  check_fork();
  Call call;
  {
    const base::MutexLock lock(mutex_);
    if (lost_) {
      throw Error(*lost_);
    }
    calls_[frame.number] = &call;
  }
  try {
    send(frame);
  } catch (...) {
    const base::MutexLock lock(mutex_);
    calls_.erase(frame.number);
    throw;
  }
  const base::MutexLock lock(mutex_);
  while (!call.answer && !lost_) {
    answered_.wait(mutex_);
  }
  calls_.erase(frame.number);
  if (!call.answer) {
    throw Error(*lost_);
  }
  if (call.answer->failure != nullptr) {
    throw error_of(*call.answer->failure);
  }
  return std::move(*call.answer);
}

void RemoteLink::receive_all() {
  try {
    while (auto received = socket_.receive()) {
      take(*received);
    }
    lose("it has ended; its standard error may say why");
  } catch (const std::exception& error) {
    socket_.shut_down();
    lose(error.what());
  }
}

void RemoteLink::take(ReceivedFrame& received) {
  wire::BodyUnion& body = received.frame.body;
  const base::MutexLock lock(mutex_);
  if (wire::AnswerT* answer = body.AsAnswer()) {
    const auto it = calls_.find(received.frame.number);
    if (it != calls_.end()) {
      it->second->answer = std::move(*answer);
      answered_.notify_all();
    } else if (received.frame.number == 0 && answer->failure != nullptr) {
      why_ended_ = answer->failure->message;
    }
  } else if (wire::EventDoneT* done = body.AsEventDone()) {
    done_.push_back(std::move(*done));
    came_.notify_all();
  } else if (wire::HostCallT* question = body.AsHostCall()) {
    host_calls_->ask(std::move(*question));
  }
}

void RemoteLink::lose(const std::string& why) {
  const base::MutexLock lock(mutex_);
  lost_ = Error(ErrorCode::kUnavailable,
                fmt::format("the process that has the board (pid {}): {}", server_,
                            why_ended_.empty() ? why : "it ended the connection: " + why_ended_));
  answered_.notify_all();
  came_.notify_all();
}

std::optional<Error> RemoteLink::lost() const {
  const base::MutexLock lock(mutex_);
  return lost_;
}

driver::Event RemoteLink::expect(uint64_t number, Take take) {
  const driver::HostEvent host = driver::HostEvent::of_no_board();
  const base::MutexLock lock(mutex_);
  if (lost_) {
    throw Error(*lost_);
  }
  expected_[number] = {host, std::move(take)};
  return host.event();
}

void RemoteLink::forget(uint64_t number) {
  Expected gone;  // without the lock: its end runs callbacks
  const base::MutexLock lock(mutex_);
  const auto it = expected_.find(number);
  if (it != expected_.end()) {
    std::swap(gone, it->second);
    expected_.erase(it);
  }
}

void RemoteLink::tell_events() {
  for (;;) {
    wire::EventDoneT done;
    {
      const base::MutexLock lock(mutex_);
      while (done_.empty() && (!lost_ || expected_.empty())) {
        came_.wait(mutex_);
      }
      if (!done_.empty()) {
        done = std::move(done_.front());
        done_.pop_front();
      }
    }
    if (done.event == 0) {
      fail_all();
    } else {
      end_event(done);
    }
  }
}

void RemoteLink::tell_segment(uint64_t number, const SharedMemory* memory) {
  if (::getpid() != process_) {
    return;
  }
  if (memory != nullptr) {
    wire::SegmentT segment;
    segment.segment = number;
    segment.bytes = memory->bytes().size();
    send(frame_of(std::move(segment)), memory->file());
  } else {
    wire::DropSegmentT drop;
    drop.segment = number;
    send(frame_of(std::move(drop)));
  }
}

void RemoteLink::end_event(const wire::EventDoneT& done) {
  Expected ended;
  {
    const base::MutexLock lock(mutex_);
    const auto it = expected_.find(done.event);
    if (it == expected_.end()) {
      return;
    }
    ended = std::move(it->second);
    expected_.erase(it);
  }
  host_calls_->end(done.event);
  if (done.failure != nullptr) {
    ended.event.fail(error_of(*done.failure));
    return;
  }
  try {
    if (ended.take) {
      ended.take(done);
    }
  } catch (const Error& error) {
    ended.event.fail(error);
    return;
  }
  ended.event.set();
}

void RemoteLink::fail_all() {
  std::unordered_map<uint64_t, Expected> all;
  std::optional<Error> why;
  {
    const base::MutexLock lock(mutex_);
    all.swap(expected_);
    why = lost_;
  }
  for (auto& [number, expected] : all) {
    host_calls_->end(number);
    expected.event.fail(*why);
  }
}

}  // namespace tpu::pjrt
