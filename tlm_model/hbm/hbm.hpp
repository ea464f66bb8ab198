// HBM of a chip: one bank of contents a core, one bandwidth shared by all that the chip's cores and
// host DMA move. Time lies in the flows (kernel/fluid_share); the sockets and HbmIf move bytes at
// once. ECC is there where bits can flip (kernel/bit_damage.hpp). Not modelled: DRAM pages,
// refresh.
#pragma once

#include <tlm_utils/simple_target_socket.h>

#include <cstdint>
#include <memory>
#include <systemc>
#include <tlm>
#include <utility>

#include "hbm/hbm_store.hpp"
#include "kernel/fluid_share.hpp"
#include "kernel/hbm_if.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::model {

// Contents of one core.
class HbmBank : public sc_core::sc_module, public HbmIf {
 public:
  // Debug port, bound by tests alone (docs/adr/0021-memory-through-typed-ports.md): addresses from
  // 0; no delay is added. Byte enables and streaming are refused.
  tlm_utils::simple_target_socket_optional<HbmBank> mem_tsock{"mem_tsock"};

  HbmBank(sc_core::sc_module_name name, PagePool& pool, uint64_t bytes, ResourceId bandwidth);

  uint64_t bytes() const override { return store_.bytes(); }
  ResourceId bandwidth() const override { return bandwidth_; }
  void read(uint64_t address, std::span<uint8_t> data) const override {
    store_.read(address, data);
  }
  void write(uint64_t address, std::span<const uint8_t> data) override {
    wrote(address, data.size());
    store_.write(address, data);
  }
  void fill(uint64_t address, uint64_t bytes, uint32_t pattern) override {
    wrote(address, bytes);
    store_.fill(address, bytes, pattern);
  }
  void copy_from(const HbmIf& source, uint64_t source_address, uint64_t address,
                 uint64_t bytes) override;
  void share(const PageSet& held, uint64_t address, bool zero) override {
    store_.share(held, address, zero);
  }
  void pin(PageSet& set, uint64_t address, uint64_t bytes, bool write, bool overwrite) override {
    store_.pin(set, address, bytes, write, overwrite);
  }
  void unpin(PageSet& set) override { store_.unpin(set); }
  const uint8_t* hold(PageSet& set, uint64_t address, uint64_t bytes, bool done) override {
    return store_.hold(set, address, bytes, done);
  }
  DataOrder& order() override { return store_.order(); }
  void release(PageSet& set) override { store_.release(set); }
  uint64_t version(uint64_t address) const override { return store_.version(address); }
  void expect(uint64_t address, PagesToCome& bytes) override { store_.expect(address, bytes); }
  void settled(uint64_t address, PagesToCome& bytes) override { store_.settled(address, bytes); }
  BitDamage* damage() override { return damage_.get(); }
  // Bits can flip from here on.
  void watch(BitDamage::Read read) { damage_ = std::make_unique<BitDamage>(std::move(read)); }
  void visit_state(spec::Archive& archive, PageNumbers& numbers) {
    store_.visit_state(archive, numbers);
  }

 private:
  void wrote(uint64_t address, uint64_t bytes) {
    if (damage_ != nullptr) [[unlikely]] {
      damage_->written(address, bytes);
    }
  }
  void b_transport_mem(tlm::tlm_generic_payload& txn, sc_core::sc_time& delay);
  unsigned transport_dbg_mem(tlm::tlm_generic_payload& txn);

  HbmStore store_;
  std::unique_ptr<BitDamage> damage_;  // null without a fault file
  const ResourceId bandwidth_;
};

class Hbm : public sc_core::sc_module {
 public:
  // The pool is shared by all chips, so that pages can be shared between any two cores.
  Hbm(sc_core::sc_module_name name, const spec::BoardParams& params, PagePool& pool,
      FluidShare& fluid);

  HbmBank& bank(size_t core) { return banks_[core]; }
  size_t banks() const { return banks_.size(); }
  ResourceId bandwidth() const { return bandwidth_; }

 private:
  const ResourceId bandwidth_;
  sc_core::sc_vector<HbmBank> banks_;
};

}  // namespace tpu::model
