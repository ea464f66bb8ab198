// Shared bandwidth: flows of bytes over sets of resources (HBM of a chip, core ports, links, PCIe).
// At any time the rates are the max-min fair ones; they change only when a flow starts or ends.
// Integer arithmetic throughout: rates are multiples of 2^-20 byte a cycle, rounded down, and do
// not depend on the order in which flows of one cycle start. A transfer costs two events. Not
// modelled: packets, arbitration, bursts. Law: docs/timing_model.md.
#pragma once

#include <array>
#include <cstdint>
#include <systemc>
#include <vector>

namespace tpu::model {

using ResourceId = int32_t;

class Flow;

class FlowListener {
 public:
  virtual ~FlowListener() = default;
  // At the present cycle: the flow has another rate, or its last byte has passed.
  virtual void flow_changed(const Flow& flow, bool ended) = 0;
};

// One transfer; owned by the caller, who must keep it alive and in place while active. A resource
// that is listed twice carries the bytes twice.
class Flow {
 public:
  static constexpr int kMaxResources = 10;

  void clear() { resource_count_ = 0; }
  void add(ResourceId resource) { resources_[static_cast<size_t>(resource_count_++)] = resource; }
  void set_bytes(uint64_t bytes) { bytes_ = bytes; }
  void set_event(sc_core::sc_event* event) {
    event_ = event;
  }  // notified (delta) at completion; may be shared
  // Told rates and end, or null; outlives the flow.
  void set_listener(FlowListener* listener) { listener_ = listener; }
  uint64_t bytes() const { return bytes_; }
  uint64_t left() const;                   // bytes that have not passed yet, rounded up
  uint64_t rate() const { return rate_; }  // (bytes << FluidShare::kFraction) a cycle
  bool active() const { return active_; }
  uint64_t done_at() const { return done_at_; }  // cycle of completion, once not active

 private:
  friend class FluidShare;
  std::array<ResourceId, kMaxResources> resources_{};
  int resource_count_ = 0;
  bool active_ = false;
  bool frozen_ = false;
  uint64_t bytes_ = 0;
  uint64_t left_ = 0;  // bytes << kFraction
  uint64_t rate_ = 0;  // (bytes << kFraction) a cycle
  uint64_t since_ = 0;
  uint64_t end_at_ = 0;
  uint64_t done_at_ = 0;
  sc_core::sc_event* event_ = nullptr;
  FlowListener* listener_ = nullptr;
};

class FluidShare : public sc_core::sc_module {
 public:
  SC_HAS_PROCESS(FluidShare);
  static constexpr int kFraction = 20;

  explicit FluidShare(sc_core::sc_module_name name);

  // Capacity in bytes a cycle as the fraction numerator / denominator. Before simulation starts.
  ResourceId add_resource(uint64_t numerator, uint64_t denominator);
  // GB/s at `percent` efficiency against a clock in MHz.
  ResourceId add_resource_gbps(int64_t gbps, int64_t percent, int64_t clock_mhz);

  // Starts the flow at the present cycle; its event follows when the last byte has passed. A flow
  // of no bytes or no resources ends in the same cycle.
  void start(Flow& flow);
  size_t active_flows() const { return flows_.size(); }
  // Bytes that have passed the resource since the beginning, for bandwidth counters.
  uint64_t bytes_passed(ResourceId resource) const {
    return resources_[static_cast<size_t>(resource)].bytes;
  }

 private:
  struct Resource {
    uint64_t capacity = 0;
    uint64_t bytes = 0;
    uint64_t left = 0;    // while rates are assigned
    uint32_t weight = 0;  // unfrozen uses
    bool visited = false;
    bool dirty = false;
  };

  void update_method();
  void retire(uint64_t now);
  void collect_component();
  void assign_rates(uint64_t now);
  void finish(Flow& flow, uint64_t now);

  std::vector<Resource> resources_;
  std::vector<Flow*> flows_;
  std::vector<Flow*> component_;
  std::vector<ResourceId> members_;
  bool dirty_ = false;
  sc_core::sc_event change_event_{"change_event"};
};

inline uint64_t Flow::left() const {
  return (left_ + (uint64_t{1} << FluidShare::kFraction) - 1) >> FluidShare::kFraction;
}

}  // namespace tpu::model
