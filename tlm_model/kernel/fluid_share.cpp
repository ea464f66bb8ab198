// Events of flows.
#include "kernel/fluid_share.hpp"

#include "kernel/cycles.hpp"

namespace tpu::model {

FluidShare::FluidShare(sc_core::sc_module_name name) : sc_module(name) {
  SC_METHOD(update_method);
  sensitive << change_event_;
  dont_initialize();
}

void FluidShare::ended(Flow& flow) {
  if (flow.listener_ != nullptr) {
    flow.listener_->flow_changed(flow, true);
  }
  if (flow.event_ != nullptr) {
    flow.event_->notify(sc_core::SC_ZERO_TIME);
  }
}

void FluidShare::start(Flow& flow) {
  if (share_.start(flow, now_cycles())) {
    ended(flow);
  } else if (!dirty_) {
    dirty_ = true;
    change_event_.notify(sc_core::SC_ZERO_TIME);
  }
}

void FluidShare::update_method() {
  const uint64_t now = now_cycles();
  dirty_ = false;
  ended_.clear();
  rerated_.clear();
  const uint64_t next = share_.update(now, ended_, &rerated_);
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
    next_trigger(change_event_);
  } else {
    next_trigger(from_cycles(next - now), change_event_);
  }
}

}  // namespace tpu::model
