// Shared bandwidth in simulated time: flows of bytes over sets of resources (HBM of a chip, core
// ports, links, PCIe) at the rates of spec/command/bandwidth_share.hpp. A transfer costs two
// events.
#pragma once

#include <cstdint>
#include <systemc>
#include <vector>

#include "command/bandwidth_share.hpp"
#include "kernel/agenda.hpp"

namespace tpu::model {

using spec::ResourceId;

class Flow;

class FlowListener {
 public:
  virtual ~FlowListener() = default;
  // At the present cycle: the flow has another rate, or its last byte has passed.
  virtual void flow_changed(const Flow& flow, bool ended) = 0;
};

// One transfer; owned by the caller, who must keep it alive and in place while active.
class Flow : public spec::Transfer {
 public:
  // Notified (delta) at completion; may be shared.
  void set_event(sc_core::sc_event* event) { event_ = event; }
  void set_task(Task* task) { task_ = task; }
  // Told rates and end, or null; outlives the flow.
  void set_listener(FlowListener* listener) { listener_ = listener; }

 private:
  friend class FluidShare;
  sc_core::sc_event* event_ = nullptr;
  Task* task_ = nullptr;
  FlowListener* listener_ = nullptr;
};

class FluidShare : public sc_core::sc_module {
 public:
  FluidShare(sc_core::sc_module_name name, Agenda& agenda);

  // Resources are added before simulation starts, see BandwidthShare.
  ResourceId add_resource(uint64_t numerator, uint64_t denominator) {
    return share_.add_resource(numerator, denominator);
  }
  ResourceId add_resource_gbps(int64_t gbps, int64_t percent, int64_t clock_mhz) {
    return share_.add_resource_gbps(gbps, percent, clock_mhz);
  }
  spec::BandwidthShare& share() { return share_; }

  // Starts the flow at the present cycle; its event follows when the last byte has passed. A flow
  // of no bytes or no resources ends in the same cycle.
  void start(Flow& flow);
  // Of a board where nothing flows.
  void visit_state(spec::Archive& archive) { share_.visit_state(archive); }
  size_t active_flows() const { return share_.active(); }
  uint64_t bytes_passed(ResourceId resource) const { return share_.bytes_passed(resource); }

 private:
  void update_method();
  static void ended(Flow& flow);

  spec::BandwidthShare share_;
  std::vector<spec::Transfer*> ended_;
  std::vector<spec::Transfer*> rerated_;
  bool listened_ = false;  // a flow has had a listener
  Task task_;
};

}  // namespace tpu::model
