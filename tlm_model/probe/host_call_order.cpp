// See host_call_order.hpp.
#include "probe/host_call_order.hpp"

#include <algorithm>

#include "exe/executable.hpp"

namespace tpu::model {
namespace {

// A call without bytes has no transfer.
bool moves_bytes(const exe::HostCallT& call) {
  return std::ranges::find(call.dims, 0) == call.dims.end();
}

}  // namespace

const exe::HostCallT* HostCallOrder::of(uint32_t number) const {
  return program_ != nullptr && number < program_->host_calls.size()
             ? program_->host_calls[number].get()
             : nullptr;
}

bool HostCallOrder::call(uint32_t number, const Call& call) {
  const exe::HostCallT* info = of(number);
  if (info == nullptr || info->stage == exe::HostStage::finish || !moves_bytes(*info)) {
    return false;
  }
  open_.push_back(call);
  open_.back().channel = info->channel;
  open_.back().whole = info->stage == exe::HostStage::whole;
  return true;
}

const HostCallOrder::Clock* HostCallOrder::answer(uint32_t number, const Clock& host) {
  const exe::HostCallT* info = of(number);
  if (info == nullptr) {
    return &host;
  }
  if (info->stage == exe::HostStage::finish) {
    const auto last = beside_.find(info->channel);
    return last == beside_.end() ? nullptr : &last->second;
  }
  if (info->stage == exe::HostStage::start || !moves_bytes(*info)) {
    return nullptr;
  }
  if (!open_.empty() && open_.back().whole) {
    open_.pop_back();  // another partition sends its bytes
    return nullptr;
  }
  return &host;
}

HostCallOrder::Call HostCallOrder::take(Call latest) {
  if (open_.empty()) {
    return latest;
  }
  Call call = std::move(open_.front());
  open_.pop_front();
  return call;
}

void HostCallOrder::moves(const Call& call, const Clock& host) {
  if (!call.whole) {
    beside_[call.channel] = host;
  }
}

}  // namespace tpu::model
