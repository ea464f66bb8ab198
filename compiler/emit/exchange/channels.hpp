// Channels between cores. A transfer writes memory of another core, so its owner grants it first
// (credit: a nop of the remote queue whose signal goes to the partner), the sender takes the
// credit, and the arrival is a wait of the receiver. Credits and arrivals have a pair of semaphores
// for each partner role (`channel`: a mask of doubling, the pairs of a step of halving, a
// permutation); both sides use them in the same order, since they run the same program.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "emit/command_sink.hpp"
#include "kernel/exchange.hpp"

namespace tpu::compiler {

struct Link {       // to a partner
  int64_t channel;  // names its semaphores
  int peer;         // register with its core id
  // By partition: looked up into the register, or the next one, in front of each command.
  const std::vector<int64_t>* partners = nullptr;
  bool taken = false;  // the credit, by an earlier transfer to the same place
};

struct GrantRequest {
  Link link;
  MemRange range;
  int* item;
};

MemRange vmem_range(int64_t address, int64_t bytes, bool write);
spec::Addr offset_by(spec::Addr a, int reg);

class Channels {
 public:
  // `cores`: of the board, by partition. Partners are partitions; their registers hold cores.
  Channels(CommandSink& sink, int semaphores, const std::vector<int>& cores);

  int first_semaphore() const { return first_semaphore_; }  // of the links
  void forget_peers() { peers_.clear(); }  // registers that another path may not have set

  // The partner whose number is this one's xor `mask`.
  Link mask_link(int64_t mask) { return {mask, peer_register(mask)}; }
  // True if partition p runs on core p: a partner's core is this one's xor a mask.
  bool in_order() const { return in_order_; }
  // reg = core of the partner, by partition
  void look_up_core(int reg, const std::vector<int64_t>& partners);
  // The partner whom this core sends to or, `back`, that sends to this core. The register holds
  // until the next call.
  Link permutation_link(const std::vector<int64_t>& to, bool back);
  int64_t permutation_channel(const std::vector<int64_t>& to);
  // By partition: its partner in a stage of halving.
  std::vector<int64_t> partners(const Exchange& e, size_t stage) const {
    return stage_partners(e, stage, static_cast<int64_t>(cores_.size()));
  }
  // Stage of halving; `waiting`: the queue that waits for its arrivals.
  int64_t stage_channel(const Exchange& e, size_t stage, spec::Queue waiting);
  void look_up(int reg, const std::vector<int64_t>& values);  // reg = values[partition]

  // Tells the partner that it may write `range` of this core. Returns the item.
  int grant(const Link& link, const MemRange& range, uint32_t id);
  void grant(const std::vector<GrantRequest>& requests, uint32_t id);  // two in a command
  void send(const Link& link, const spec::Addr& src, const spec::Addr& dst, int64_t bytes,
            int64_t unit, const MemRange& reads, uint32_t id);
  void receive(const Link& link, std::vector<MemRange> ranges, int granted, uint32_t id);
  // Makes the last command wait for an arrival in `range`.
  void await_arrival(const Link& link, const MemRange& range, int granted);
  // A box from `src` to `dst`, on this core or (with a link) on the partner, as few commands as its
  // strides allow.
  void move_box(const Link* link, const spec::Addr& src, const spec::Addr& dst, int64_t elem_bytes,
                const std::vector<CopyDim>& dims, const std::vector<MemRange>& windows,
                uint32_t id);

 private:
  void look_up_many(int reg, const std::vector<int64_t>& values, int scratch);
  int ready_peer(const Link& link, int number);
  int peer_register(int64_t mask);
  void set_peer(int reg, int64_t mask);
  int semaphores(int64_t channel);

  CommandSink& sink_;
  int first_semaphore_;
  const std::vector<int> cores_;
  const bool in_order_;
  std::map<int64_t, int> semaphores_;  // channel -> semaphore of credits; +1: of arrivals
  std::map<int64_t, int> peers_;       // mask -> register
  std::map<std::vector<int64_t>, int64_t> permutations_;  // target by core -> number of its channel
  using StageKey = std::pair<std::vector<int64_t>, spec::Queue>;  // partner by core, waiting queue
  std::map<StageKey, int64_t> stages_;  // of halving: number of its channel
};

}  // namespace tpu::compiler
