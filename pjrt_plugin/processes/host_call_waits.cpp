#include "processes/host_call_waits.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "processes/wire/failure.hpp"

namespace tpu::pjrt {

void HostCallWaits::ask(uint64_t launch, const driver::HostCallInfo& call, size_t partition,
                        std::span<std::byte> bytes) {
  wire::HostCallT question;
  {
    const base::MutexLock lock(mutex_);
    question.call = ++last_;
    calls_[question.call] = nullptr;
  }
  question.launch = launch;
  question.channel = call.channel;
  question.to_host = call.to_host;
  question.partition = static_cast<int>(partition);
  question.one_for_all = call.partition;
  question.dtype = static_cast<uint8_t>(call.dtype);
  question.dims = call.shape;
  question.op = call.op;
  question.source = call.source;
  question.size = bytes.size();
  if (call.to_host) {
    const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
    question.bytes.assign(data, data + bytes.size());
  }
  const uint64_t number = question.call;
  try {
    out_->post(frame_of(std::move(question)));
  } catch (...) {  // too many bytes for a frame
    const base::MutexLock lock(mutex_);
    calls_.erase(number);
    throw;
  }
  const base::MutexLock lock(mutex_);
  while (calls_[number] == nullptr && !closed_) {
    changed_.wait(mutex_);
  }
  const std::unique_ptr<wire::HostCallEndT> answer = std::move(calls_[number]);
  calls_.erase(number);
  if (answer == nullptr) {
    throw driver::Error(driver::ErrorCode::kUnavailable,
                        "the process that answers this host call has ended",
                        {.device = -1, .op = call.op, .source = call.source});
  }
  if (answer->failure != nullptr) {
    throw error_of(*answer->failure);
  }
  if (!call.to_host) {
    if (answer->bytes.size() != bytes.size()) {
      throw driver::Error(driver::ErrorCode::kInternal,
                          fmt::format("a process answered a host call with {} of {} bytes",
                                      answer->bytes.size(), bytes.size()));
    }
    std::memcpy(bytes.data(), answer->bytes.data(), bytes.size());
  }
}

void HostCallWaits::end(wire::HostCallEndT&& answer) {
  const base::MutexLock lock(mutex_);
  const auto it = calls_.find(answer.call);
  if (it == calls_.end() || it->second != nullptr) {
    throw driver::Error(driver::ErrorCode::kInternal, "an answer to no host call");
  }
  it->second = std::make_unique<wire::HostCallEndT>(std::move(answer));
  changed_.notify_all();
}

void HostCallWaits::close() {
  const base::MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace tpu::pjrt
