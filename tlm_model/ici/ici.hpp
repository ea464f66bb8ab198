// Inter-chip interconnect of the board, data side: ways, latencies and bandwidth are those of
// spec/command/links.hpp, shared by kernel/fluid_share. Of a pod, each board has its own, which
// leads to the cores of the other boards by a Cut. Not modelled: packets, virtual channels, flow
// control.
#pragma once

#include <cstdint>
#include <memory>
#include <systemc>
#include <utility>
#include <vector>

#include "command/links.hpp"
#include "ici/link_faults.hpp"
#include "kernel/fluid_share.hpp"
#include "kernel/remote_if.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::model {

class Ici : public sc_core::sc_module, public IciIf {
 public:
  // Of a board alone.
  Ici(sc_core::sc_module_name name, const spec::BoardParams& params, FluidShare& fluid);
  // Of a board of a pod; `links`: of the whole pod.
  Ici(sc_core::sc_module_name name, uint32_t board, std::shared_ptr<const spec::Links> links);
  void set_cut(CutIf& cut) { cut_ = &cut; }
  // Before the simulation starts, each core of the pod: what it offers to its peers. Not ports of
  // SystemC, of which every board of a pod would have as many as the pod has cores.
  void connect(uint32_t core, RemoteIf& peer) { peers_[core] = &peer; }

  uint32_t cores() const override { return links_->cores(); }
  void add_path(uint32_t from, uint32_t to, Flow& flow) const override {
    lost_any() ? links_->add_way(way(from, to), from, to, flow) : links_->add_path(from, to, flow);
  }
  uint64_t data_latency(uint32_t from, uint32_t to) const override {
    return lost_any() ? links_->data_latency(way(from, to)) : links_->data_latency(from, to);
  }
  uint64_t control_latency(uint32_t from, uint32_t to) const override {
    return lost_any() ? links_->control_latency(way(from, to)) : links_->control_latency(from, to);
  }
  uint64_t gang_latency(uint32_t from, uint32_t to) const override;
  RemoteIf& peer(uint32_t core) override { return *peers_[core]; }

  LinkPassage pass_links(uint32_t from, uint32_t to) override {
    return faults_ == nullptr ? LinkPassage() : pass_faulty(from, to);
  }
  void enter_links(uint32_t from, uint32_t to, uint32_t first, uint32_t count,
                   Longer longer) override;
  // Links can fail from here on: those of this board, and those of others that are down.
  LinkFaults& faults(uint32_t cores_per_chip);
  // The link that leaves a chip.
  LinkFaults::Link link(const spec::Links::Hop& hop) const { return {hop.chip, links_->link(hop)}; }

  CutIf* cut() override { return cut_; }
  bool behind_cut(uint32_t core) const override {
    return cut_ != nullptr && core < links_->cores() && links_->board_of(core) != board_;
  }

  // Links between the chips of two cores.
  uint32_t hops(uint32_t from, uint32_t to) const { return links_->hops(from, to); }

 private:
  LinkPassage pass_faulty(uint32_t from, uint32_t to);
  bool lost_any() const { return faults_ != nullptr && faults_->lost_any(); }
  // Round the links that are down for good, where links of the board allow it.
  spec::Links::Way way(uint32_t from, uint32_t to) const;

  std::unique_ptr<LinkFaults> faults_;  // null without a fault file
  const uint32_t board_ = 0;
  const std::shared_ptr<const spec::Links> links_;
  std::vector<RemoteIf*> peers_;
  CutIf* cut_ = nullptr;
};

}  // namespace tpu::model
