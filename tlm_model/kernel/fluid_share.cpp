// Max-min fair rates by progressive filling: the resource with the least share per use is full
// first, its flows get that share, the rest of the capacity is dealt out again. Only the part of
// the graph that a change touches is redone.
#include "kernel/fluid_share.hpp"

#include <algorithm>

#include "kernel/cycles.hpp"

namespace tpu::model {

FluidShare::FluidShare(sc_core::sc_module_name name) : sc_module(name) {
  SC_METHOD(update_method);
  sensitive << change_event_;
  dont_initialize();
}

ResourceId FluidShare::add_resource(uint64_t numerator, uint64_t denominator) {
  Resource resource;
  resource.capacity =
      static_cast<uint64_t>((static_cast<unsigned __int128>(numerator) << kFraction) / denominator);
  resource.capacity = std::max<uint64_t>(resource.capacity, 1);
  resources_.push_back(resource);
  return static_cast<ResourceId>(resources_.size() - 1);
}

ResourceId FluidShare::add_resource_gbps(int64_t gbps, int64_t percent, int64_t clock_mhz) {
  // GB/s / MHz = 1000 bytes a cycle.
  return add_resource(static_cast<uint64_t>(gbps * percent * 1000),
                      static_cast<uint64_t>(clock_mhz * 100));
}

void FluidShare::start(Flow& flow) {
  const uint64_t now = now_cycles();
  if (flow.bytes_ == 0 || flow.resource_count_ == 0) {
    finish(flow, now);
    return;
  }
  flow.active_ = true;
  flow.left_ = flow.bytes_ << kFraction;
  flow.rate_ = 0;
  flow.since_ = now;
  flow.end_at_ = kNever;
  flows_.push_back(&flow);
  for (int i = 0; i < flow.resource_count_; ++i) {
    resources_[static_cast<size_t>(flow.resources_[static_cast<size_t>(i)])].dirty = true;
  }
  if (!dirty_) {
    dirty_ = true;
    change_event_.notify(sc_core::SC_ZERO_TIME);
  }
}

void FluidShare::finish(Flow& flow, uint64_t now) {
  flow.active_ = false;
  flow.done_at_ = now;
  for (int i = 0; i < flow.resource_count_; ++i) {
    Resource& resource = resources_[static_cast<size_t>(flow.resources_[static_cast<size_t>(i)])];
    resource.bytes += flow.bytes_;
    resource.dirty = true;
  }
  if (flow.listener_ != nullptr) {
    flow.left_ = 0;
    flow.rate_ = 0;
    flow.listener_->flow_changed(flow, true);
  }
  if (flow.event_ != nullptr) {
    flow.event_->notify(sc_core::SC_ZERO_TIME);
  }
}

void FluidShare::update_method() {
  const uint64_t now = now_cycles();
  dirty_ = false;
  retire(now);
  collect_component();
  assign_rates(now);
  uint64_t next = kNever;
  for (const Flow* flow : flows_) {
    next = std::min(next, flow->end_at_);
  }
  if (next == kNever) {
    next_trigger(change_event_);
  } else {
    next_trigger(from_cycles(next - now), change_event_);
  }
}

void FluidShare::retire(uint64_t now) {
  size_t kept = 0;
  for (Flow* flow : flows_) {
    if (flow->end_at_ <= now) {
      finish(*flow, now);
    } else {
      flows_[kept++] = flow;
    }
  }
  flows_.resize(kept);
}

// All flows that share a resource, directly or over others, with one that changed.
void FluidShare::collect_component() {
  component_.clear();
  members_.clear();
  for (Resource& resource : resources_) {
    resource.visited = resource.dirty;
    resource.dirty = false;
  }
  for (Flow* flow : flows_) {
    flow->frozen_ = true;
  }
  for (bool grew = true; grew;) {
    grew = false;
    for (Flow* flow : flows_) {
      if (!flow->frozen_) {
        continue;
      }
      bool touched = false;
      for (int i = 0; i < flow->resource_count_ && !touched; ++i) {
        touched = resources_[static_cast<size_t>(flow->resources_[static_cast<size_t>(i)])].visited;
      }
      if (touched) {
        flow->frozen_ = false;
        component_.push_back(flow);
        for (int i = 0; i < flow->resource_count_; ++i) {
          resources_[static_cast<size_t>(flow->resources_[static_cast<size_t>(i)])].visited = true;
        }
        grew = true;
      }
    }
  }
  for (size_t id = 0; id < resources_.size(); ++id) {
    if (resources_[id].visited) {
      resources_[id].left = resources_[id].capacity;
      resources_[id].weight = 0;
      members_.push_back(static_cast<ResourceId>(id));
    }
  }
}

void FluidShare::assign_rates(uint64_t now) {
  for (Flow* flow : component_) {
    flow->left_ -= std::min(flow->left_, flow->rate_ * (now - flow->since_));
    flow->since_ = now;
    for (int i = 0; i < flow->resource_count_; ++i) {
      ++resources_[static_cast<size_t>(flow->resources_[static_cast<size_t>(i)])].weight;
    }
  }
  for (size_t open = component_.size(); open > 0;) {
    uint64_t share = kNever;
    ResourceId full = -1;
    for (const ResourceId id : members_) {
      const Resource& resource = resources_[static_cast<size_t>(id)];
      if (resource.weight > 0 && resource.left / resource.weight < share) {
        share = resource.left / resource.weight;
        full = id;
      }
    }
    share = std::max<uint64_t>(share, 1);
    for (Flow* flow : component_) {
      const auto end = flow->resources_.begin() + flow->resource_count_;
      if (flow->frozen_ || std::find(flow->resources_.begin(), end, full) == end) {
        continue;
      }
      flow->frozen_ = true;
      --open;
      const bool changed = flow->rate_ != share;
      flow->rate_ = share;
      flow->end_at_ = now + (flow->left_ + share - 1) / share;
      if (changed && flow->listener_ != nullptr) {
        flow->listener_->flow_changed(*flow, false);
      }
      for (auto id = flow->resources_.begin(); id != end; ++id) {
        Resource& resource = resources_[static_cast<size_t>(*id)];
        resource.left -= std::min(resource.left, share);
        --resource.weight;
      }
    }
  }
}

}  // namespace tpu::model
