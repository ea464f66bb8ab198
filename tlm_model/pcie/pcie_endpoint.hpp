// PCIe endpoint of a chip: BAR0 (chip page here, core pages behind core_isock), BAR2 (load windows
// of the cores), DMA to host memory, MSI. Posted writes of one direction stay in order; a read
// passes no posted write in front of it, and its response pushes the posted writes of the device.
// Latency and bandwidth: docs/timing_model.md. Not modelled: TLP headers, credits, link training.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <systemc>
#include <utility>

#include "file/archive.hpp"
#include "kernel/activity.hpp"
#include "kernel/bus_access.hpp"
#include "kernel/cycles.hpp"
#include "kernel/host_bus.hpp"
#include "kernel/register_block.hpp"
#include "pcie/host_memory.hpp"
#include "probe/register_probe.hpp"
#include "tpu/spec/board_params.hpp"
#include "tpu/spec/chip_page_regs.hpp"

namespace tpu::model {

struct ChipIdentity {
  uint32_t index;
  uint32_t x;
  uint32_t y;
  uint64_t board_hash;
};

class PcieEndpoint : public sc_core::sc_module, public HostBus, public RegisterBlock {
 public:
  SC_HAS_PROCESS(PcieEndpoint);
  sc_core::sc_vector<tlm_utils::simple_initiator_socket<PcieEndpoint>> core_isock;

  PcieEndpoint(sc_core::sc_module_name name, const spec::BoardParams& params,
               const ChipIdentity& identity, HostMemory& memory, FluidShare& share,
               Activity& activity, const ProbeSet* probes = nullptr);

  // Host side, called in the gate process. A posted write takes no wall-clock time; a read waits
  // for its response.
  void host_write(int bar, uint64_t offset, std::span<const std::byte> data);
  uint32_t host_read(int bar, uint64_t offset);
  // The same in parts, for a caller that waits for more than the response.
  struct HostRead {
    uint32_t value = 0xFFFFFFFF;
    uint64_t least = 0;          // the response does not come before this cycle
    bool has_value = false;      // the chip has read
    std::optional<uint64_t> at;  // the response comes
    sc_core::sc_event answered;  // `has_value`; without a name: to register one is slow
  };
  void begin_read(int bar, uint64_t offset, HostRead& read);
  // Sets `at` when the chip has read in this cycle.
  void see_answer(HostRead& read) const;
  // First cycles in which something that is on its way may be there; kNever: nothing is.
  struct Coming {
    uint64_t access;  // of the host, to the chip
    uint64_t msi;
  };
  Coming coming() const;
  // Vectors delivered since the last call, one bit each.
  uint32_t take_msi();
  bool msi_pending() const { return delivered_ != 0; }
  const sc_core::sc_event& msi_event() const { return msi_event_; }
  // Posted writes on the wires.
  size_t savable_activity() const { return down_.size() + up_.size(); }
  // Of an endpoint that no read waits for.
  void visit_state(spec::Archive& archive);

  // Faults on purpose: of the next accesses of a kind. `told` is called when one meets it.
  enum class Upset : uint8_t { kTimeout, kPoison, kLostMsi };
  static constexpr size_t kUpsets = 3;
  void upset(Upset kind, std::function<void()> told) {
    upsets_[static_cast<size_t>(kind)].push_back(std::move(told));
    upset_ = true;
  }
  // The chip is no longer on the bus: reads are all ones for ever, all else is lost.
  void remove() { removed_ = upset_ = true; }
  // ECC has corrected a word of core `core` (index on the chip), or could not. `hbm`: its address;
  // none: it is in VMEM or SMEM.
  void ecc_read(size_t core, std::optional<uint64_t> hbm, bool corrected);
  // A link LINK_* has sent windows again, has gone down or come back.
  void link_repeats(uint32_t link, uint64_t windows);
  void link_changes(uint32_t link, bool down);
  bool ecc_on() const {
    return (reg(spec::chip_page::kEccCtrl) & spec::chip_page::kEccCtrlEnableMask) != 0;
  }
  // For good: a reset of the chip does not switch it on again.
  void switch_ecc_off() {
    has_ecc_ = false;
    set_reg(spec::chip_page::kEccCtrl,
            reg(spec::chip_page::kEccCtrl) & ~spec::chip_page::kEccCtrlEnableMask);
  }

  // HostBus.
  DmaRead read_host(uint64_t iova, uint64_t bytes, std::span<const ResourceId> local,
                    const std::function<void(std::span<const std::byte>)>& sink) override;
  bool write_host(uint64_t iova, uint64_t bytes, std::span<const ResourceId> local,
                  const std::function<bool()>& wanted,
                  const std::function<void(std::span<std::byte>)>& source) override;
  void post_host(uint64_t iova, std::vector<std::byte> data, int vector) override;
  void post_msi(int vector) override;

 private:
  struct Downstream {  // towards the chip
    uint64_t at;
    int bar;
    uint64_t offset;
    std::vector<std::byte> data;  // empty: a read
    HostRead* read = nullptr;
    void visit_state(spec::Archive& archive) { archive(at, bar, offset, data); }
  };
  struct Upstream {  // towards the host
    uint64_t at;
    uint64_t iova;
    std::vector<std::byte> data;
    int vector;
    void visit_state(spec::Archive& archive) { archive(at, iova, data, vector); }
  };

  void downstream_thread();
  void upstream_thread();
  void perform(Downstream& request);
  void write_bar(int bar, uint64_t offset, std::span<std::byte> data);
  uint32_t read_bar(int bar, uint64_t offset);
  bool core_access(size_t core, uint64_t offset, std::span<std::byte> data, bool write);
  static RegisterMap registers();
  void stored(uint32_t offset, uint32_t value) override;
  uint32_t time_low() const { return static_cast<uint32_t>(now_cycles()); }
  void latch_time();
  void mask_written();
  void chip_reset(uint32_t value);
  void load_window(uint64_t offset, std::span<std::byte> data);
  void deliver(int vector);
  bool meets(Upset kind);
  static void answer(HostRead& read, uint32_t value);
  void raise_event(uint32_t event);
  void flow(uint64_t bytes, ResourceId link, std::span<const ResourceId> local);
  uint64_t wire_cycles(uint64_t bytes) const;

  const spec::BoardParams& params_;
  HostMemory& memory_;
  FluidShare& share_;
  Activity& activity_;
  const RegisterProbe probe_;
  const uint64_t latency_;
  ResourceId down_link_;
  ResourceId up_link_;

  std::deque<Downstream> down_;
  std::deque<Upstream> up_;
  BusAccess core_bus_;
  uint64_t down_free_at_ = 0;  // the wire towards the chip is free
  uint64_t up_last_at_ = 0;    // landing of the last posted write
  sc_core::sc_event down_event_{"down_event"};
  sc_core::sc_event up_event_{"up_event"};
  sc_core::sc_event msi_event_{"msi_event"};

  bool upset_ = false;  // any of what follows
  bool removed_ = false;
  bool has_ecc_ = true;
  uint64_t ecc_cycle_ = UINT64_MAX;  // of the newest entry of the ECC log
  uint32_t ecc_first_ = 0;           // of this cycle, as ECC_LOGGED counts
  std::array<std::deque<std::function<void()>>, kUpsets> upsets_;

  uint32_t held_ = 0;  // masked vectors that were sent
  uint32_t delivered_ = 0;
  uint32_t& errors_ = cell(spec::chip_page::kErrCount);
};

}  // namespace tpu::model
