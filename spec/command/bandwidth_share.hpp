// Shared bandwidth: transfers of bytes over sets of resources (HBM of a chip, ports of cores,
// links, PCIe). At any time the rates are the max-min fair ones; they change only when a transfer
// starts or ends. Integer arithmetic throughout: rates are multiples of 2^-20 byte a cycle, rounded
// down, and do not depend on the order in which transfers of one cycle start. Time is the caller's:
// it calls update() once what starts in a cycle has started, and again when the next transfer ends.
// Not modelled: packets, arbitration, bursts. Specification: docs/timing_model.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "file/archive.hpp"

namespace tpu::spec {

using ResourceId = int32_t;

/// One transfer; owned by the caller, who must keep it alive and in place while active. A resource
/// that is listed twice carries the bytes twice.
class Transfer {
 public:
  static constexpr int kMaxResources = 70;  // HBM, ports, and the ways of two cores

  void clear() { resource_count_ = 0; }
  void add(ResourceId resource) { resources_[static_cast<size_t>(resource_count_++)] = resource; }
  void set_bytes(uint64_t bytes) { bytes_ = bytes; }
  uint64_t bytes() const { return bytes_; }
  uint64_t left() const;                   ///< bytes that have not passed yet, rounded up
  uint64_t rate() const { return rate_; }  ///< (bytes << BandwidthShare::kFraction) a cycle
  /// (bytes << BandwidthShare::kFraction) that have not passed by `now`, which is not before the
  /// last update.
  uint64_t left_at(uint64_t now) const { return left_ - std::min(left_, rate_ * (now - since_)); }
  bool active() const { return active_; }
  uint64_t done_at() const { return done_at_; }  ///< cycle of completion, once not active

 private:
  friend class BandwidthShare;
  bool uses_one() const;  // resource, though perhaps more than once
  uint64_t bytes_ = 0;
  uint64_t left_ = 0;  // bytes << kFraction
  uint64_t rate_ = 0;  // (bytes << kFraction) a cycle
  uint64_t since_ = 0;
  uint64_t end_at_ = 0;
  uint64_t done_at_ = 0;
  int resource_count_ = 0;
  bool active_ = false;
  bool frozen_ = false;
  std::array<ResourceId, kMaxResources> resources_{};  // last: most have one
};

class BandwidthShare {
 public:
  static constexpr int kFraction = 20;
  static constexpr uint64_t kNever = UINT64_MAX;

  /// Capacity in bytes a cycle as the fraction numerator / denominator.
  ResourceId add_resource(uint64_t numerator, uint64_t denominator);
  /// GB/s at `percent` efficiency against a clock in MHz.
  ResourceId add_resource_gbps(int64_t gbps, int64_t percent, int64_t clock_mhz);

  /// Starts the transfer at cycle `now`; true when it is over at once, since it has no bytes or no
  /// resources. Else update() must follow in this cycle.
  bool start(Transfer& transfer, uint64_t now);
  /// Ends what is over at `now`, appending it to `ended`, and gives everyone its rate; whose rate
  /// is another one than before is appended to `rerated`, if that is given. Returns the cycle of
  /// the next end, kNever if nothing is active.
  uint64_t update(uint64_t now, std::vector<Transfer*>& ended,
                  std::vector<Transfer*>* rerated = nullptr);

  size_t active() const { return active_.size(); }
  /// Forgets the active transfers. Each of them can be resumed, with its bytes left, its rate and
  /// the resources that it has then; update() must follow in this cycle.
  void forget() { active_.clear(); }
  void resume(Transfer& transfer);
  /// Of a copy: the active transfers, which lie in one block of memory, were copied too.
  void move_transfers(const void* from, void* to);
  /// Of all resources, and others for them; what is under way must use none of those that differ.
  std::vector<uint64_t> capacities() const;
  void take_capacities(const std::vector<uint64_t>& capacities);
  /// With no transfer active.
  void visit_state(Archive& archive) {
    for (Resource& resource : resources_) {
      archive(resource.bytes);
    }
  }
  /// Bytes that have passed the resource since the beginning, for bandwidth counters.
  uint64_t bytes_passed(ResourceId resource) const {
    return resources_[static_cast<size_t>(resource)].bytes;
  }

 private:
  struct Resource {
    uint64_t capacity = 0;
    uint64_t bytes = 0;
    uint64_t left = 0;     // while rates are assigned; or the rate of each use
    uint32_t weight = 0;   // unfrozen uses
    bool visited = false;  // one of members_
    bool changed = false;  // one of changed_
  };

  // An active transfer, with what each update looks at.
  struct Active {
    Transfer* transfer;
    uint64_t end_at;
    ResourceId only;  // resource that it uses; below 0: it uses several
    uint32_t uses;    // of that one
  };

  void change(ResourceId id);
  void join(ResourceId id);
  bool uses_changed(const Transfer& transfer) const;
  bool assign_alone(uint64_t now, std::vector<Transfer*>* rerated);
  void tell_alone(std::vector<Transfer*>& rerated);
  void collect_component();
  void assign_rates(uint64_t now, std::vector<Transfer*>* rerated);
  void finish(Transfer& transfer, uint64_t now);

  std::vector<Resource> resources_;
  std::vector<Active> active_;
  std::vector<size_t> touched_;  // places in active_, whose rate is given anew
  std::vector<Transfer*> component_;
  std::vector<ResourceId> members_;  // resources of the component
  std::vector<ResourceId> changed_;  // whose transfers are others since the last update
};

}  // namespace tpu::spec
