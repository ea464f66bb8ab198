// Gang barrier and abort of a core: registers, packets of the control channel, and what they cost
// (its latency). Arrivals and aborts go to the root, the lowest core of the gang, whose rules are
// spec/gang/gang_root.hpp. Specification: spec/regs/gsync.toml.
#pragma once

#include <cstdint>
#include <set>
#include <systemc>
#include <tuple>
#include <vector>

#include "gang/gang_root.hpp"
#include "kernel/register_block.hpp"
#include "mgmt/fabric.hpp"
#include "mgmt/irq.hpp"
#include "tpu/spec/gsync_regs.hpp"

namespace tpu::model {

// What an abort does to the core around the block.
class GsyncOwner {
 public:
  virtual ~GsyncOwner() = default;
  virtual void stop_sequencer() = 0;
  // The gang that the sequencer has, if it has rows.
  virtual spec::CoreSet gang_of_rows() = 0;
};

class Gsync : public sc_core::sc_module, public RegisterBlock, public ControlIf {
 public:
  SC_HAS_PROCESS(Gsync);
  Gsync(sc_core::sc_module_name name, uint32_t core, Fabric& fabric, Irq& irq, GsyncOwner& owner);

  void reset();
  // It waits at a barrier: its gang is under way.
  bool waiting() const { return waiting_; }
  size_t packets_on_the_way() const { return inbox_.size(); }
  // First cycle in which a packet is there; kNever: none is on its way. 0: while it may give up
  // peers that do not come.
  uint64_t silent() const;
  // Of a block that does not wait.
  void visit_state(spec::Archive& archive);
  // Aborts the gang that this core is in (TAG, MASK); nothing when it is in none.
  void abort_running(uint32_t code);
  void abort_if_tag(uint32_t tag, uint32_t code);

  void control_packet(uint64_t at, uint32_t from, const ControlPacket& packet) override;

 private:
  struct Arrival {
    uint64_t at;
    uint32_t from;
    uint64_t number;
    ControlPacket packet;
    bool operator<(const Arrival& other) const {
      return std::tie(at, from, number) < std::tie(other.at, other.from, other.number);
    }
    void visit_state(spec::Archive& archive) { archive(at, from, number, packet); }
  };

  static RegisterMap registers();
  void inbox_method();
  void timeout_method();
  void tag_written();
  void mask_written();
  void arrive(uint32_t kind);
  void abort_written(uint32_t code);
  void send(uint32_t to, const ControlPacket& packet);
  void send_abort(uint32_t root, uint32_t tag, const spec::CoreSet& gang, uint32_t code);
  void handle(uint32_t from, const ControlPacket& packet);
  void deliver(const std::vector<spec::GangMessage>& messages);
  void released(const ControlPacket& packet);
  void aborted(const ControlPacket& packet);
  void stop(const ControlPacket& packet);
  uint32_t cores() const { return static_cast<uint32_t>(fabric_.control.size()); }
  uint32_t root_of(const spec::CoreSet& gang) const { return gang.empty() ? core_ : gang.lowest(); }
  spec::CoreSet in_board(uint32_t mask) const;
  uint32_t root() const { return root_of(gang_); }
  uint32_t state() const;

  const uint32_t core_;
  Fabric& fabric_;
  Irq& irq_;
  GsyncOwner& owner_;

  uint32_t& tag_ = cell(spec::gsync::kTag);
  spec::CoreSet gang_;
  uint32_t waiting_kind_ = 0;
  bool waiting_ = false;
  bool released_ = false;
  bool aborted_ = false;
  bool peer_lost_ = false;

  spec::GangRoot root_;  // used where this core is the root
  std::set<Arrival> inbox_;
  uint64_t packets_ = 0;
  sc_core::sc_event inbox_event_{"inbox_event"};
  sc_core::sc_event timeout_event_{"timeout_event"};
};

}  // namespace tpu::model
