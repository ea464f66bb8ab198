// Control processor of a core: hart with ROM, ITCM and DTCM, its bus and register blocks, host DMA,
// gang barrier; the host reaches its core page and load window through host_tsock. The blocks seq,
// sem, fault and perf and the slot banks belong to the core and are reached over sockets.
// Specification: spec/formats/hart_map.toml, spec/regs.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>
#include <tlm_utils/simple_target_socket.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <systemc>
#include <vector>

#include "kernel/bus_access.hpp"
#include "mgmt/console.hpp"
#include "mgmt/core_page.hpp"
#include "mgmt/fabric.hpp"
#include "mgmt/gsync.hpp"
#include "mgmt/hart_unit.hpp"
#include "mgmt/host_dma.hpp"
#include "mgmt/infeed.hpp"
#include "mgmt/irq.hpp"
#include "mgmt/timer.hpp"
#include "types/zeroed_vector.hpp"

namespace tpu::model {

class Mgmt : public sc_core::sc_module,
             private CorePageOwner,
             private GsyncOwner,
             private HostDmaOwner {
 public:
  SC_HAS_PROCESS(Mgmt);
  tlm_utils::simple_target_socket<Mgmt> host_tsock{"host_tsock"};   // from the PCIe endpoint
  tlm_utils::simple_initiator_socket<Mgmt> seq_isock{"seq_isock"};  // register blocks of the core
  tlm_utils::simple_initiator_socket<Mgmt> sem_isock{"sem_isock"};
  tlm_utils::simple_initiator_socket<Mgmt> fault_isock{"fault_isock"};
  tlm_utils::simple_initiator_socket<Mgmt> perf_isock{"perf_isock"};
  tlm_utils::simple_initiator_socket<Mgmt> slots_isock{"slots_isock"};  // slot banks
  sc_core::sc_port<HostBus> host_port{"host_port"};
  sc_core::sc_in<bool> done_i{"done_i"};        // program ended
  sc_core::sc_in<bool> fault_i{"fault_i"};      // this core found a fault
  sc_core::sc_in<bool> drained_i{"drained_i"};  // engines idle after fault or abort
  sc_core::sc_in<bool> call_i{"call_i"};        // the program calls the host

  struct Place {
    uint32_t core;  // on the board
    uint32_t chip;
    uint32_t local;  // on the chip
    uint64_t board_hash;
  };

  // `rom` is the mask ROM, `log` takes the console; both must outlive the module.
  Mgmt(sc_core::sc_module_name name, const spec::BoardParams& params, const Place& place,
       std::span<const uint8_t> rom, Fabric& fabric, ConsoleLog& log);

  ControlIf& control() { return gsync_; }
  void end_console_line() { console_.flush(); }
  // What keeps this part of the board from being saved, or nothing.
  const char* busy_with() const { return gsync_.waiting() ? "waits at a barrier" : nullptr; }
  // What is in flight here that can be saved: a hart that runs, packets.
  size_t savable_activity() const {
    return gsync_.packets_on_the_way() + (hart_unit_.awake() ? 1 : 0);
  }
  // First cycle in which the hart may do something, unless something arrives or its core reports to
  // it. 0: it is awake, or waits for what ends at a time that is not known here.
  uint64_t silent() const;
  // Of a board where nothing else is in flight; loaded behind its core, whose lines are up by then.
  void visit_state(spec::Archive& archive);
  // Debug port: what the hart would see at an address, no simulated time. False: nothing that can
  // be read or written so. Registers are read without side effects, and written as by the hart.
  HartUnit& hart_unit() { return hart_unit_; }
  HostDma& host_dma() { return host_dma_; }
  bool debug_read(uint32_t address, std::span<uint8_t> data);
  bool debug_write(uint32_t address, std::span<const uint8_t> data);
  bool bus_register(uint32_t address, bool write, uint32_t& value);  // as the hart, effects and all
  // An access of the hart that need not wait for its cycle: nobody sees the difference.
  bool untimed(const MmioAccess& access);
  const Hart& hart() const { return hart_unit_.hart(); }
  // Debug port: words from the hart's stack pointer up, at most so many.
  std::vector<uint32_t> stack(size_t most) const;
  uint32_t page_reg(uint32_t offset) const { return page_.page_reg(offset); }

 private:
  struct Memory {
    uint32_t base;
    ZeroedVector<uint8_t>* bytes;
  };
  using CoreSocket = tlm_utils::simple_initiator_socket<Mgmt>;

  // Host side.
  void b_transport_host(tlm::tlm_generic_payload& txn, sc_core::sc_time& delay);
  bool load_window(uint64_t offset, std::span<const uint8_t> data);
  // Hart side.
  void b_transport_bus(tlm::tlm_generic_payload& txn, sc_core::sc_time& delay);
  bool bus_hbm_window(uint32_t offset, std::span<uint8_t> data, bool write);
  bool peek_register(uint32_t address, uint32_t& value);
  std::string text_at(uint32_t address, size_t most) const;
  uint32_t core_register(CoreSocket& socket, uint64_t offset);
  bool forward(CoreSocket& socket, uint64_t address, std::span<uint8_t> data, bool write);
  // Lines of the core.
  void done_method();
  void fault_method();
  void drained_method();
  void call_method();
  void hart_died();

  // CorePageOwner.
  void core_reset() override;
  void hart_run(bool run) override;
  void debug_halt(bool halt) override;
  void doorbell() override;
  void host_request() override;
  void host_abort(uint32_t tag) override;
  void send_msi(uint32_t vector) override;
  // GsyncOwner.
  void stop_sequencer() override;
  spec::CoreSet gang_of_rows() override;
  // HostDmaOwner.
  std::span<std::byte> tcm(uint64_t address, uint64_t bytes) override;
  void tcm_changed(uint64_t address, uint64_t bytes) override;
  bool write_slots(uint64_t offset, std::span<const std::byte> data) override;

  const Place place_;
  Fabric& fabric_;
  std::vector<uint8_t> rom_;
  ZeroedVector<uint8_t> itcm_;
  ZeroedVector<uint8_t> dtcm_;
  tlm_utils::simple_target_socket<Mgmt> bus_tsock_{"bus_tsock"};

  Irq irq_;
  CorePage page_;
  Infeed infeed_;
  Console console_;
  Timer timer_;
  Gsync gsync_;
  HostDma host_dma_;
  HartUnit hart_unit_;
  std::array<RegisterBlock*, 16> blocks_{};  // by 4 KiB block of the MMIO window; null: none here
  std::array<CoreSocket*, 16> core_blocks_{};
  BusAccess core_bus_;
};

}  // namespace tpu::model
