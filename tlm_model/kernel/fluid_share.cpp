// Events of flows.
#include "kernel/fluid_share.hpp"

#include "kernel/cycles.hpp"

namespace tpu::model {

FluidShare::FluidShare(sc_core::sc_module_name name, Agenda& agenda)
    : sc_module(name), task_(Task::of<&FluidShare::update_method>(agenda, *this)) {}

void FluidShare::ended(Flow& flow) {
  if (flow.listener_ != nullptr) {
    flow.listener_->flow_changed(flow, true);
  }
  if (flow.event_ != nullptr) {
    flow.event_->notify(sc_core::SC_ZERO_TIME);
  }
  if (flow.task_ != nullptr) {
    flow.task_->notify();
  }
}

void FluidShare::start(Flow& flow) {
  listened_ = listened_ || flow.listener_ != nullptr;
  if (share_.start(flow, now_cycles())) {
    ended(flow);
  } else {
    task_.notify();
  }
}

void FluidShare::update_method() {
  const uint64_t now = now_cycles();
  ended_.clear();
  rerated_.clear();
  const uint64_t next = share_.update(now, ended_, listened_ ? &rerated_ : nullptr);
  for (spec::Transfer* transfer : ended_) {
    ended(static_cast<Flow&>(*transfer));
  }
  for (spec::Transfer* transfer : rerated_) {
    auto& flow = static_cast<Flow&>(*transfer);
    if (flow.listener_ != nullptr) {
      flow.listener_->flow_changed(flow, false);
    }
  }
  if (next == kNever) {
    task_.wait();
  } else {
    task_.wait_cycles(next - now);
  }
}

}  // namespace tpu::model
