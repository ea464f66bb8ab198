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

// Where a remote write goes, found in the tables of the receiver.
struct RemoteTarget {
  enum class Status { kOk, kDropped, kStray, kBadRange, kBadSlot, kBadSpace };
  Status status = Status::kDropped;
  uint8_t* memory = nullptr;  // VMEM or SMEM at offset 0; null for HBM
  HbmIf* hbm = nullptr;
  uint64_t base = 0;  // address of operand offset 0 in that memory
  uint64_t size = 0;  // of the memory or slot
};

class RemoteIf : public virtual sc_core::sc_interface {
 public:
  // Resolves an operand of a peer: bytes [low, high) relative to `address`.offset must lie in the
  // memory or slot. kDropped: the gang of `tag` is over here (counted). kStray: unknown tag (the
  // receiver faults).
  virtual RemoteTarget remote_target(uint16_t tag, const spec::Addr& address, int64_t low,
                                     int64_t high) = 0;
  // A signal that arrives in this cycle; dropped or stray like a write.
  virtual void remote_signal(uint16_t tag, uint8_t semaphore, uint32_t value) = 0;
  virtual void remote_received(uint64_t bytes) = 0;
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
