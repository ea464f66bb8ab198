// How cores reach each other over the interconnect: RemoteIf is what a core offers to its peers,
// IciIf what the network offers to a core. Data are moved by the sender's job; the network gives
// path and latency.
#pragma once

#include <cstdint>
#include <systemc>

#include "kernel/fluid_share.hpp"
#include "kernel/hbm_if.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::model {

// What a packet of a gang carries: tag (launch id) and step of its sender.
struct GangStep {
  uint32_t tag = 0;
  uint32_t step = 0;
};

// Where a remote write goes, found in the tables of the receiver.
struct RemoteTarget {
  enum class Status { kOk, kDropped, kEnded, kStray, kBadRange, kBadSlot, kBadSpace };
  Status status = Status::kDropped;
  uint8_t* memory = nullptr;  // VMEM or SMEM at offset 0; null for HBM
  HbmIf* hbm = nullptr;
  uint64_t base = 0;  // address of operand offset 0 in that memory
  uint64_t size = 0;  // of the memory or slot
};

class RemoteIf : public virtual sc_core::sc_interface {
 public:
  // Resolves an operand of a peer: bytes [low, high) relative to `address`.offset must lie in the
  // memory or slot. kOk: the write is under way until remote_landed(). kDropped: the gang was
  // aborted here (counted). kEnded: this core has ended that step, so the sender is wrong
  // (counted). kStray: unknown tag (the receiver faults).
  virtual RemoteTarget remote_target(GangStep from, const spec::Addr& address, int64_t low,
                                     int64_t high) = 0;
  virtual void remote_landed() = 0;
  // A signal that arrives in this cycle; kOk, or refused like a write.
  virtual RemoteTarget::Status remote_signal(GangStep from, uint8_t semaphore, uint32_t value) = 0;
  virtual void remote_received(uint64_t bytes) = 0;
  // For the watchdogs of the gang: changes with every command that did work.
  virtual uint64_t work_done() const { return 0; }
  virtual bool work_in_flight() const { return false; }
};

class IciIf : public virtual sc_core::sc_interface {
 public:
  virtual uint32_t cores() const = 0;
  // Adds ports and links of the way to `flow`, x first, then y.
  virtual void add_path(uint32_t from, uint32_t to, Flow& flow) const = 0;
  // Cycles from issue to confirmed of a transfer beside its bytes' time; and of a packet without
  // data.
  virtual uint64_t data_latency(uint32_t from, uint32_t to) const = 0;
  virtual uint64_t control_latency(uint32_t from, uint32_t to) const = 0;
  virtual RemoteIf& peer(uint32_t core) = 0;
};

}  // namespace tpu::model
