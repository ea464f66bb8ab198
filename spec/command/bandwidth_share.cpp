// Max-min fair rates by progressive filling: the resource with the least share per use is full
// first, its transfers get that share, the rest of the capacity is dealt out again. Only the part
// of the graph that a change touches is redone.
#include "command/bandwidth_share.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tpu::spec {

uint64_t Transfer::left() const {
  constexpr uint64_t kUnit = uint64_t{1} << BandwidthShare::kFraction;
  return (left_ + kUnit - 1) / kUnit;
}

bool Transfer::uses_one() const {
  const auto end = resources_.begin() + resource_count_;
  return std::all_of(resources_.begin(), end,
                     [this](ResourceId id) { return id == resources_[0]; });
}

ResourceId BandwidthShare::add_resource(uint64_t numerator, uint64_t denominator) {
  Resource resource;
  resource.capacity =
      static_cast<uint64_t>((static_cast<unsigned __int128>(numerator) << kFraction) / denominator);
  resource.capacity = std::max<uint64_t>(resource.capacity, 1);
  resources_.push_back(resource);
  return static_cast<ResourceId>(resources_.size() - 1);
}

ResourceId BandwidthShare::add_resource_gbps(int64_t gbps, int64_t percent, int64_t clock_mhz) {
  // GB/s / MHz = 1000 bytes a cycle.
  return add_resource(static_cast<uint64_t>(gbps * percent * 1000),
                      static_cast<uint64_t>(clock_mhz * 100));
}

bool BandwidthShare::start(Transfer& transfer, uint64_t now) {
  if (transfer.bytes_ == 0 || transfer.resource_count_ == 0) {
    finish(transfer, now);
    return true;
  }
  transfer.active_ = true;
  transfer.left_ = transfer.bytes_ << kFraction;
  transfer.rate_ = 0;
  transfer.since_ = now;
  transfer.end_at_ = kNever;
  resume(transfer);
  return false;
}

void BandwidthShare::resume(Transfer& transfer) {
  const bool one = transfer.uses_one();
  active_.push_back({&transfer, transfer.end_at_, one ? transfer.resources_[0] : -1,
                     static_cast<uint32_t>(transfer.resource_count_)});
  for (int i = 0; i < transfer.resource_count_; ++i) {
    change(transfer.resources_[static_cast<size_t>(i)]);
  }
}

void BandwidthShare::finish(Transfer& transfer, uint64_t now) {
  transfer.active_ = false;
  transfer.done_at_ = now;
  transfer.left_ = transfer.rate_ = 0;
  for (int i = 0; i < transfer.resource_count_; ++i) {
    const ResourceId id = transfer.resources_[static_cast<size_t>(i)];
    resources_[static_cast<size_t>(id)].bytes += transfer.bytes_;
    change(id);
  }
}

void BandwidthShare::change(ResourceId id) {
  Resource& resource = resources_[static_cast<size_t>(id)];
  if (!resource.changed) {
    resource.changed = true;
    changed_.push_back(id);
  }
}

// Takes the resource into the component, if it is not there yet.
void BandwidthShare::join(ResourceId id) {
  Resource& resource = resources_[static_cast<size_t>(id)];
  if (!resource.visited) {
    resource.visited = true;
    resource.left = resource.capacity;
    resource.weight = 0;
    members_.push_back(id);
  }
}

uint64_t BandwidthShare::update(uint64_t now, std::vector<Transfer*>& ended,
                                std::vector<Transfer*>* rerated) {
  std::erase_if(active_, [&](const Active& active) {
    const bool over = active.end_at <= now;
    if (over) {
      finish(*active.transfer, now);
      ended.push_back(active.transfer);
    }
    return over;
  });
  if (!assign_alone(now, rerated)) {
    collect_component();
    assign_rates(now, rerated);
    for (Active& active : active_) {
      active.end_at = active.transfer->end_at_;
    }
  }
  uint64_t next = kNever;
  for (const Active& active : active_) {
    next = std::min(next, active.end_at);
  }
  return next;
}

// The most frequent changes, those of HBM: all transfers that use a resource that has changed use
// no other one, though that perhaps more than once, and share it equally. Gives the rates that
// assign_rates() would.
bool BandwidthShare::assign_alone(uint64_t now, std::vector<Transfer*>* rerated) {
  for (const ResourceId id : changed_) {
    resources_[static_cast<size_t>(id)].weight = 0;
  }
  touched_.clear();
  for (size_t i = 0; i < active_.size(); ++i) {
    const Active& active = active_[i];
    if (active.only >= 0) {
      Resource& resource = resources_[static_cast<size_t>(active.only)];
      if (resource.changed) {
        resource.weight += active.uses;
        touched_.push_back(i);
      }
    } else if (uses_changed(*active.transfer)) {
      return false;
    }
  }
  for (const ResourceId id : changed_) {
    Resource& resource = resources_[static_cast<size_t>(id)];
    resource.left =
        resource.weight == 0 ? kNever : std::max<uint64_t>(resource.capacity / resource.weight, 1);
    resource.changed = false;
  }
  if (rerated != nullptr) {
    tell_alone(*rerated);
  }
  for (const size_t place : touched_) {
    Active& active = active_[place];
    Transfer& transfer = *active.transfer;
    const uint64_t share = resources_[static_cast<size_t>(active.only)].left;
    transfer.left_ = transfer.left_at(now);
    transfer.since_ = now;
    if (transfer.rate_ != share) {  // else it keeps its end
      transfer.rate_ = share;
      active.end_at = transfer.end_at_ = now + (transfer.left_ + share - 1) / share;
    }
  }
  changed_.clear();
  return true;
}

bool BandwidthShare::uses_changed(const Transfer& transfer) const {
  const auto end = transfer.resources_.begin() + transfer.resource_count_;
  return std::any_of(transfer.resources_.begin(), end,
                     [this](ResourceId id) { return resources_[static_cast<size_t>(id)].changed; });
}

// Whose rate assign_alone() changes, in the order of assign_rates(), which whoever shows rates
// sees.
void BandwidthShare::tell_alone(std::vector<Transfer*>& rerated) {
  const auto share_of = [this](ResourceId id) { return resources_[static_cast<size_t>(id)].left; };
  std::ranges::sort(changed_, {}, [&](ResourceId id) { return std::pair(share_of(id), id); });
  for (const ResourceId id : changed_) {
    for (const size_t place : touched_) {
      const Active& active = active_[place];
      if (active.only == id && active.transfer->rate_ != share_of(id)) {
        rerated.push_back(active.transfer);
      }
    }
  }
}

void BandwidthShare::move_transfers(const void* from, void* to) {
  for (Active& active : active_) {
    const auto offset =
        reinterpret_cast<const char*>(active.transfer) - static_cast<const char*>(from);
    active.transfer = reinterpret_cast<Transfer*>(static_cast<char*>(to) + offset);
  }
}

std::vector<uint64_t> BandwidthShare::capacities() const {
  std::vector<uint64_t> all;
  for (const Resource& resource : resources_) {
    all.push_back(resource.capacity);
  }
  return all;
}

void BandwidthShare::take_capacities(const std::vector<uint64_t>& capacities) {
  for (size_t i = 0; i < resources_.size(); ++i) {
    resources_[i].capacity = capacities.at(i);
  }
}

// All transfers that share a resource, directly or over others, with one that changed.
void BandwidthShare::collect_component() {
  component_.clear();
  for (const ResourceId id : members_) {
    resources_[static_cast<size_t>(id)].visited = false;
  }
  members_.clear();
  for (const ResourceId id : changed_) {
    resources_[static_cast<size_t>(id)].changed = false;
    join(id);
  }
  changed_.clear();
  for (const Active& active : active_) {
    active.transfer->frozen_ = true;
  }
  for (size_t before = 0; before != members_.size();) {  // until no resource has joined
    before = members_.size();
    for (const Active& active : active_) {
      Transfer* const transfer = active.transfer;
      if (!transfer->frozen_) {
        continue;
      }
      bool touched = false;
      for (int i = 0; i < transfer->resource_count_ && !touched; ++i) {
        touched =
            resources_[static_cast<size_t>(transfer->resources_[static_cast<size_t>(i)])].visited;
      }
      if (touched) {
        transfer->frozen_ = false;
        component_.push_back(transfer);
        for (int i = 0; i < transfer->resource_count_; ++i) {
          join(transfer->resources_[static_cast<size_t>(i)]);
        }
      }
    }
  }
  std::sort(members_.begin(), members_.end());
}

void BandwidthShare::assign_rates(uint64_t now, std::vector<Transfer*>* rerated) {
  for (Transfer* transfer : component_) {
    transfer->left_ -= std::min(transfer->left_, transfer->rate_ * (now - transfer->since_));
    transfer->since_ = now;
    for (int i = 0; i < transfer->resource_count_; ++i) {
      ++resources_[static_cast<size_t>(transfer->resources_[static_cast<size_t>(i)])].weight;
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
    for (Transfer* transfer : component_) {
      const auto end = transfer->resources_.begin() + transfer->resource_count_;
      if (transfer->frozen_ || std::find(transfer->resources_.begin(), end, full) == end) {
        continue;
      }
      transfer->frozen_ = true;
      --open;
      if (rerated != nullptr && transfer->rate_ != share) {
        rerated->push_back(transfer);
      }
      transfer->rate_ = share;
      transfer->end_at_ = now + (transfer->left_ + share - 1) / share;
      for (auto id = transfer->resources_.begin(); id != end; ++id) {
        Resource& resource = resources_[static_cast<size_t>(*id)];
        resource.left -= std::min(resource.left, share);
        --resource.weight;
      }
    }
  }
}

}  // namespace tpu::spec
