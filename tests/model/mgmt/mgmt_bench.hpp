// A board of control processors without their cores: PCIe endpoints, Mgmt, HBM and links are real,
// sequencers are register files that remember. Hart programs are put together from a few
// instructions.
#pragma once

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../../unit/hart/rv_encode.hpp"
#include "board/board_loader.hpp"
#include "hbm/hbm.hpp"
#include "ici/ici.hpp"
#include "kernel/host_port.hpp"
#include "kernel/local_memory.hpp"
#include "kernel/register_block.hpp"
#include "mgmt/mgmt.hpp"
#include "pcie/pcie_endpoint.hpp"
#include "tpu/spec/core_page_regs.hpp"
#include "tpu/spec/hart_map.h"
#include "tpu/spec/irq_regs.hpp"

namespace tpu::model {

// Host memory from address kBase on.
class ArenaMemory : public HostMemory {
 public:
  static constexpr uint64_t kBase = 0x10000;
  explicit ArenaMemory(size_t bytes) : bytes_(bytes) {}
  std::span<std::byte> span(uint64_t iova, uint64_t bytes, bool /*write*/) override {
    if (iova < kBase || iova - kBase > bytes_.size() || bytes > bytes_.size() - (iova - kBase)) {
      return {};
    }
    return std::span(bytes_).subspan(iova - kBase, bytes);
  }
  template <typename T>
  T get(uint64_t iova) {
    T value;
    std::memcpy(&value, span(iova, sizeof value, false).data(), sizeof value);
    return value;
  }
  template <typename T>
  void put(uint64_t iova, const T& value) {
    std::memcpy(span(iova, sizeof value, true).data(), &value, sizeof value);
  }

 private:
  std::vector<std::byte> bytes_;
};

// A block of the core that keeps what is written, at any offset.
class RegisterDouble : public sc_core::sc_module {
 public:
  tlm_utils::simple_target_socket<RegisterDouble> csr_tsock{"csr_tsock"};

  explicit RegisterDouble(sc_core::sc_module_name name) : sc_module(name) {
    csr_tsock.register_b_transport(this, &RegisterDouble::access);
  }
  std::map<uint32_t, std::vector<uint32_t>> written;  // by offset, in order

 private:
  void access(tlm::tlm_generic_payload& txn, sc_core::sc_time& /*delay*/) {
    std::vector<uint32_t>& values = written[static_cast<uint32_t>(txn.get_address())];
    uint32_t value = values.empty() ? 0 : values.back();
    if (txn.is_write()) {
      std::memcpy(&value, txn.get_data_ptr(), sizeof value);
      values.push_back(value);
    } else {
      std::memcpy(txn.get_data_ptr(), &value, sizeof value);
    }
    txn.set_response_status(tlm::TLM_OK_RESPONSE);
  }
};

class RemoteDouble : public RemoteIf {
 public:
  RemoteAnswer remote_open(const RemoteWrite&, RemotePlace*) override { return {}; }
  void remote_landed(const RemoteWrite&, std::span<const uint8_t>) override {}
  RemoteAnswer remote_signal(const RemoteSignal&) override { return {}; }
};

// Instructions of a hart program; x5-x7 are used.
class HartProgram {
 public:
  void li(uint32_t rd, uint32_t value) {
    code_.push_back(rv::lui(rd, (value + 0x800) >> 12));
    code_.push_back(rv::addi(rd, rd, static_cast<int32_t>(value << 20) >> 20));
  }
  void store(uint32_t address, uint32_t value) {
    li(5, address);
    li(6, value);
    code_.push_back(rv::sw(6, 0, 5));
  }
  void copy(uint32_t to, uint32_t from) {
    li(5, from);
    code_.push_back(rv::lw(6, 0, 5));
    li(5, to);
    code_.push_back(rv::sw(6, 0, 5));
  }
  // Sleeps until an enabled source is pending, then clears it.
  void wait_irq() {
    li(5, TPU_HART_IRQ_BASE + spec::irq::kTake);
    code_.push_back(rv::kWfi);
    code_.push_back(rv::lw(6, 0, 5));
  }
  void enable_irq(uint32_t sources) {
    store(TPU_HART_IRQ_BASE + spec::irq::kEnable, sources);
    li(6, 1U << 11);
    code_.push_back(
        rv::csrrw(0, 0x304, 6));  // mie.MEIE; mstatus.MIE stays off: WFI wakes without a trap
  }
  void sleep_forever() {
    code_.push_back(rv::kWfi);
    code_.push_back(rv::jal(0, -4));
  }
  void raw(uint32_t insn) { code_.push_back(insn); }
  const std::vector<uint32_t>& code() const { return code_; }

 private:
  std::vector<uint32_t> code_;
};

class MgmtBench {
 public:
  explicit MgmtBench(const std::string& preset = "v3_8")
      : params(spec::load_board(preset)), memory(1 << 20), port_([this] { return elaborate(); }) {}
  ~MgmtBench() { port_.close(); }

  struct CoreDouble {
    explicit CoreDouble(size_t index)
        : seq(("seq" + std::to_string(index)).c_str()),
          sem(("sem" + std::to_string(index)).c_str()),
          fault(("fault" + std::to_string(index)).c_str()),
          perf(("perf" + std::to_string(index)).c_str()),
          slots(("slots" + std::to_string(index)).c_str(), TPU_SLOT_BANKS * TPU_SLOT_BANK_BYTES) {}
    RegisterDouble seq, sem, fault, perf;
    LocalMemory slots;
    sc_core::sc_signal<bool> done, faulted, drained, call;
    RemoteDouble remote;
  };

  void write32(int chip, uint64_t offset, uint32_t value) {
    call([&] { endpoint(chip).host_write(0, offset, std::as_bytes(std::span(&value, 1))); });
  }
  uint32_t read32(int chip, uint64_t offset) {
    uint32_t value = 0;
    call([&] { value = endpoint(chip).host_read(0, offset); });
    return value;
  }
  static uint64_t page(uint32_t core, uint32_t offset) {
    return spec::core_page::kBase + core % 2 * spec::core_page::kStride + offset;
  }
  void write_page(uint32_t core, uint32_t offset, uint32_t value) {
    write32(static_cast<int>(core / 2), page(core, offset), value);
  }
  uint32_t read_page(uint32_t core, uint32_t offset) {
    return read32(static_cast<int>(core / 2), page(core, offset));
  }
  // Puts the program into the mask ROM's place: ITCM, with a ROM that jumps there.
  void start(uint32_t core, const HartProgram& program) {
    const auto bytes = std::as_bytes(std::span(program.code()));
    call([&] {
      endpoint(static_cast<int>(core / 2))
          .host_write(2, core % 2 * spec::core_page::kLoadStride, bytes);
    });
    write_page(core, spec::core_page::kCoreCtrl, spec::core_page::kCoreCtrlHartRunMask);
  }
  // Lets time pass until an MSI has arrived (true) or nothing is in flight.
  bool run() {
    bool msi = false;
    call([&] {
      for (;;) {
        while (sc_core::sc_pending_activity_at_current_time()) {
          sc_core::wait(sc_core::SC_ZERO_TIME);
        }
        sc_core::sc_event_or_list events;
        for (auto& e : endpoints) {
          msi = msi || e->msi_pending();
          events |= e->msi_event();
        }
        if (msi || activity->quiet()) {
          return;
        }
        events |= activity->quiet_event();
        sc_core::wait(events);
      }
    });
    return msi;
  }
  uint32_t take_msi(int chip) {
    uint32_t vectors = 0;
    call([&] { vectors = endpoint(chip).take_msi(); });
    return vectors;
  }
  void pass(uint64_t cycles) {
    call([&] { sc_core::wait(from_cycles(cycles)); });
  }
  uint64_t now() {
    uint64_t cycles = 0;
    call([&] { cycles = now_cycles(); });
    return cycles;
  }
  void call(const std::function<void()>& job) { port_.call(job); }
  PcieEndpoint& endpoint(int chip) { return *endpoints[static_cast<size_t>(chip)]; }

  spec::BoardParams params;
  ArenaMemory memory;
  ConsoleLog log;
  std::unique_ptr<Agenda> agenda;
  std::unique_ptr<FluidShare> share;
  std::unique_ptr<Activity> activity;
  std::unique_ptr<HartClock> hart_clock;
  std::unique_ptr<PagePool> pool;
  std::unique_ptr<Ici> ici;
  std::vector<std::unique_ptr<Hbm>> hbm;
  std::vector<std::unique_ptr<PcieEndpoint>> endpoints;
  std::vector<std::unique_ptr<CoreDouble>> cores;
  std::vector<std::unique_ptr<Mgmt>> mgmt;
  ProbeSet probes;
  Fabric fabric;

 private:
  std::shared_ptr<void> elaborate() {
    agenda = std::make_unique<Agenda>("agenda");
    share = std::make_unique<FluidShare>("share", *agenda);
    activity = std::make_unique<Activity>();
    hart_clock = std::make_unique<HartClock>("hart_clock");
    pool = std::make_unique<PagePool>();
    ici = std::make_unique<Ici>("ici", params, *share);
    fabric.ici = ici.get();
    fabric.share = share.get();
    fabric.activity = activity.get();
    fabric.hart_clock = hart_clock.get();
    fabric.probes = &probes;
    const auto chips = static_cast<uint32_t>(spec::chip_count(params));
    for (uint32_t chip = 0; chip < chips; ++chip) {
      const std::string number = std::to_string(chip);
      hbm.push_back(std::make_unique<Hbm>(("hbm" + number).c_str(), params, *pool, *share));
      fabric.hbm.push_back(&hbm.back()->bank(0));
      fabric.hbm.push_back(&hbm.back()->bank(1));
      endpoints.push_back(
          std::make_unique<PcieEndpoint>(("pcie" + number).c_str(), params,
                                         ChipIdentity{chip, chip % 2, chip / 2, 0x123456789ABCDEF0},
                                         memory, *share, *activity, &probes));
    }
    HartProgram rom;
    rom.li(5, TPU_HART_ITCM_BASE);
    rom.raw(rv::jalr(0, 5, 0));
    const auto* rom_bytes = reinterpret_cast<const uint8_t*>(rom.code().data());
    fabric.control.resize(2 * chips);
    for (uint32_t core = 0; core < 2 * chips; ++core) {
      add_core(core, {rom_bytes, rom.code().size() * 4});
    }
    return nullptr;
  }

  void add_core(uint32_t core, std::span<const uint8_t> rom) {
    cores.push_back(std::make_unique<CoreDouble>(core));
    CoreDouble& twin = *cores.back();
    mgmt.push_back(std::make_unique<Mgmt>(("mgmt" + std::to_string(core)).c_str(), params,
                                          Mgmt::Place{core, core / 2, core % 2, 0}, rom, fabric,
                                          log));
    Mgmt& unit = *mgmt.back();
    fabric.control[core] = &unit.control();
    PcieEndpoint& pcie = *endpoints[core / 2];
    pcie.core_isock[core % 2].bind(unit.host_tsock);
    unit.host_port(pcie);
    unit.seq_isock.bind(twin.seq.csr_tsock);
    unit.sem_isock.bind(twin.sem.csr_tsock);
    unit.fault_isock.bind(twin.fault.csr_tsock);
    unit.perf_isock.bind(twin.perf.csr_tsock);
    unit.slots_isock.bind(twin.slots.mem_tsock);
    unit.done_i(twin.done);
    unit.fault_i(twin.faulted);
    unit.drained_i(twin.drained);
    unit.call_i(twin.call);
    ici->connect(core, twin.remote);
  }

  HostPort port_;
};

}  // namespace tpu::model
