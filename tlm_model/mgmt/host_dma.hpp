// Host DMA of a core: six contexts that move ranges between host memory, TCM, slot banks and HBM,
// with CRC-32C. Bytes over PCIe, HBM and links share their bandwidth with everything else.
// Specification: spec/regs/hostdma.toml. Not modelled: the ports of the TCM.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <systemc>
#include <utility>
#include <vector>

#include "kernel/activity.hpp"
#include "kernel/host_bus.hpp"
#include "kernel/register_block.hpp"
#include "mgmt/fabric.hpp"
#include "mgmt/irq.hpp"
#include "tpu/spec/board_params.hpp"
#include "tpu/spec/hostdma_regs.hpp"

namespace tpu::model {

// Memories around the block.
class HostDmaOwner {
 public:
  virtual ~HostDmaOwner() = default;
  // Bytes of TCM at a hart address; empty when the range is not inside one memory.
  virtual std::span<std::byte> tcm(uint64_t address, uint64_t bytes) = 0;
  virtual void tcm_changed(uint64_t address, uint64_t bytes) = 0;
  // False: outside of the slot banks.
  virtual bool write_slots(uint64_t offset, std::span<const std::byte> data) = 0;
};

class HostDma : public sc_core::sc_module, public RegisterBlock {
 public:
  sc_core::sc_port<HostBus> host_port{"host_port"};

  HostDma(sc_core::sc_module_name name, const spec::BoardParams& params, uint32_t core,
          int completion_vector, Fabric& fabric, Irq& irq, HostDmaOwner& owner);

  bool busy() const { return active() != 0; }
  // Contexts forget their transfers; bytes that are under way are dropped when they arrive.
  void reset();
  // Flips a bit of the next entry of the command ring that arrives (or of the completion ring that
  // leaves), and tells.
  void damage_ring(bool completion, uint32_t bit, std::function<void()> told) {
    damage_[completion ? 1 : 0].push_back({bit, std::move(told)});
  }
  // Of a block that moves nothing.
  void visit_state(spec::Archive& archive) {
    visit_registers(archive);
    archive(contexts_);
  }

 private:
  struct RingDamage {
    uint32_t bit;
    std::function<void()> told;
  };
  static constexpr uint32_t kContexts = spec::hostdma::kContexts;

  // A transfer: what its registers said when it started.
  struct Context {
    uint64_t host = 0;
    uint64_t local = 0;
    uint64_t bytes = 0;
    uint32_t pattern = 0;
    uint32_t start = 0;
    uint32_t error = 0;
    uint32_t generation = 0;  // counts resets
    bool busy = false;
    sc_core::sc_event started;
    void visit_state(spec::Archive& archive) { archive(start, error, generation); }
  };

  void context_thread(uint32_t index);
  static RegisterMap registers();
  bool untimed_now(uint32_t index) const override { return !contexts_[index].busy; }
  bool may_describe(uint32_t index, uint32_t value);
  uint32_t status(uint32_t index) const;
  uint32_t active() const;
  uint32_t& crc_of(const Context& context);
  uint32_t& entry_bad_of(const Context& context);
  void read_description(Context& context);
  void start(uint32_t index, uint32_t value);
  bool post(Context& context);
  uint32_t run(Context& context);
  uint32_t run_with_host(Context& context);
  uint32_t check(const Context& context) const;
  uint32_t index_of(const Context& context) const {
    return static_cast<uint32_t>(&context - contexts_.data());
  }
  uint32_t run_from_host(Context& context);
  uint32_t run_to_host(Context& context);
  void run_crc(const Context& context);
  void run_fill(const Context& context);
  uint32_t run_d2d(const Context& context);
  void run_d2d_between_boards(const Context& context);
  void tell_transfer(const Context& context, bool begin) const;
  void tell_ring(const Context& context, bool completion, std::span<const std::byte> entries) const;
  void damage_entry(bool completion, std::span<std::byte> entry);
  void take(const Context& context, std::span<const std::byte> data);
  bool reads_well(uint64_t address, uint64_t bytes);
  void flow(uint64_t bytes, const std::function<void(Flow&)>& path);

  const spec::BoardParams& params_;
  const uint32_t core_;
  const int completion_vector_;
  Fabric& fabric_;
  Irq& irq_;
  HostDmaOwner& owner_;
  std::array<Context, kContexts> contexts_;
  std::array<std::vector<RingDamage>, 2> damage_;  // of commands, of completions
};

}  // namespace tpu::model
