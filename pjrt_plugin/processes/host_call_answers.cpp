#include "processes/host_call_answers.hpp"

#include <thread>
#include <utility>

#include "processes/wire/failure.hpp"

namespace tpu::pjrt {

HostCallAnswers::HostCallAnswers(Send send) : send_(std::move(send)) {
  std::thread([this] { run(); }).detach();
}

void HostCallAnswers::begin(uint64_t launch, driver::HostCallHandler handler) {
  const base::MutexLock lock(mutex_);
  handlers_[launch] = std::move(handler);
}

void HostCallAnswers::end(uint64_t launch) {
  driver::HostCallHandler gone;  // without the lock: its end may call the framework
  const base::MutexLock lock(mutex_);
  const auto it = handlers_.find(launch);
  if (it != handlers_.end()) {
    gone.swap(it->second);
    handlers_.erase(it);
  }
}

void HostCallAnswers::ask(wire::HostCallT question) {
  const base::MutexLock lock(mutex_);
  questions_.push_back(std::move(question));
  asked_.notify_all();
}

void HostCallAnswers::run() {
  for (;;) {
    wire::HostCallT question;
    {
      const base::MutexLock lock(mutex_);
      while (questions_.empty()) {
        asked_.wait(mutex_);
      }
      question = std::move(questions_.front());
      questions_.pop_front();
    }
    try {
      send_(frame_of(answer_of(question)));
    } catch (...) {  // too many bytes for a frame, or for the memory of this process
      wire::HostCallEndT refused;
      refused.call = question.call;
      refused.failure = failure_of_exception();
      send_(frame_of(std::move(refused)));
    }
  }
}

wire::HostCallEndT HostCallAnswers::answer_of(const wire::HostCallT& question) {
  wire::HostCallEndT end;
  end.call = question.call;
  try {
    driver::HostCallHandler handler;
    {
      const base::MutexLock lock(mutex_);
      const auto it = handlers_.find(question.launch);
      handler = it == handlers_.end() ? nullptr : it->second;
    }
    if (!handler) {
      throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                          "nobody is there for this host call");
    }
    const driver::HostCallInfo info{.channel = question.channel,
                                    .to_host = question.to_host,
                                    .partition = question.one_for_all,
                                    .dtype = static_cast<driver::DType>(question.dtype),
                                    .shape = question.dims,
                                    .op = question.op,
                                    .source = question.source};
    std::vector<uint8_t> bytes = question.bytes;
    bytes.resize(question.size);
    handler(info, static_cast<size_t>(question.partition),
            std::as_writable_bytes(std::span(bytes)));
    if (!question.to_host) {
      end.bytes = std::move(bytes);
    }
  } catch (...) {
    end.failure = failure_of_exception();
  }
  return end;
}

}  // namespace tpu::pjrt
