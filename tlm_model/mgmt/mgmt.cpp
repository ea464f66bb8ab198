// Control processor of a core: wiring of its blocks, bus decode, reset, lines.
#include "mgmt/mgmt.hpp"

#include <algorithm>
#include <cstring>

#include "board/board_loader.hpp"
#include "kernel/cycles.hpp"
#include "tpu/spec/chip_page_regs.hpp"
#include "tpu/spec/fault_regs.hpp"
#include "tpu/spec/gsync_regs.hpp"
#include "tpu/spec/hart_map.h"
#include "tpu/spec/irq_regs.hpp"
#include "tpu/spec/rings.h"
#include "tpu/spec/seq_regs.hpp"
#include "tpu/spec/seq_table.hpp"
#include "tpu/spec/sysctl_regs.hpp"

namespace tpu::model {

namespace {

constexpr uint32_t kKilocycle = 1024;
constexpr uint32_t kMmioBlocks = 11;

CorePage::Identity identity_of(const spec::BoardParams& params, const Mgmt::Place& place,
                               uint64_t hbm_bytes) {
  const auto watchdog = params.mgmt.watchdog_us * params.core.clock_mhz / kKilocycle;
  return {.core = place.core,
          .chip = place.chip,
          .local = place.local,
          .cores = static_cast<uint32_t>(spec::core_count(params)),
          .clock_khz = static_cast<uint32_t>(params.core.clock_mhz * 1000),
          .hbm_bytes = hbm_bytes,
          .board_hash = place.board_hash,
          .watchdog_kcycles = static_cast<uint32_t>(watchdog)};
}

uint32_t block_of(uint32_t base) { return (base - TPU_HART_MMIO_BASE) / TPU_HART_MMIO_BLOCK_BYTES; }

}  // namespace

Mgmt::Mgmt(sc_core::sc_module_name name, const spec::BoardParams& params, const Place& place,
           std::span<const uint8_t> rom, Fabric& fabric, ConsoleLog& log)
    : sc_module(name),
      place_(place),
      fabric_(fabric),
      rom_(TPU_HART_ROM_BYTES),
      itcm_(TPU_HART_ITCM_BYTES),
      dtcm_(TPU_HART_DTCM_BYTES),
      irq_({fabric.probes, RegisterEvent::Block::kIrq, place.core}),
      page_(identity_of(params, place, fabric.hbm[place.core]->bytes()), *this,
            {fabric.probes, RegisterEvent::Block::kCorePage, place.core}),
      infeed_(irq_),
      console_(place.core, log, fabric.probes,
               [this](uint32_t address, size_t most) { return text_at(address, most); }),
      timer_("timer", irq_),
      gsync_("gsync", place.core, fabric, irq_, *this),
      host_dma_("hostdma", params, place.core,
                static_cast<int>(spec::chip_page::kMsiCompletion + 2 * place.local), fabric, irq_,
                *this),
      hart_unit_("hart", place.core, params, irq_, *fabric.hart_clock, *fabric.activity,
                 {fabric.probes, fabric.debugger},
                 {.on_dead = [this] { hart_died(); },
                  .untimed = [this](const MmioAccess& access) { return untimed(access); }}) {
  std::copy_n(rom.begin(), std::min(rom.size(), rom_.size()), rom_.begin());
  host_tsock.register_b_transport(this, &Mgmt::b_transport_host);
  bus_tsock_.register_b_transport(this, &Mgmt::b_transport_bus);
  hart_unit_.bus_isock.bind(bus_tsock_);
  host_dma_.host_port(host_port);

  Hart& hart = hart_unit_.hart();
  hart.add_memory({TPU_HART_DTCM_BASE, TPU_HART_DTCM_BYTES, dtcm_.data(), true, false});
  hart.add_memory({TPU_HART_ITCM_BASE, TPU_HART_ITCM_BYTES, itcm_.data(), true, true});
  hart.add_memory({TPU_HART_ROM_BASE, TPU_HART_ROM_BYTES, rom_.data(), false, true});
  hart.add_mmio_window(TPU_HART_MMIO_BASE, kMmioBlocks * TPU_HART_MMIO_BLOCK_BYTES);
  hart.add_mmio_window(TPU_HART_HBM_WINDOW_BASE, TPU_HART_HBM_WINDOW_BYTES);
  if (fabric.hart_code != nullptr) {
    hart.use_code(*fabric.hart_code);
  }

  blocks_[block_of(TPU_HART_SYSCTL_BASE)] = &page_;
  blocks_[block_of(TPU_HART_IRQ_BASE)] = &irq_;
  blocks_[block_of(TPU_HART_TIMER_BASE)] = &timer_;
  blocks_[block_of(TPU_HART_HOSTDMA_BASE)] = &host_dma_;
  blocks_[block_of(TPU_HART_GSYNC_BASE)] = &gsync_;
  blocks_[block_of(TPU_HART_INFEED_BASE)] = &infeed_;
  blocks_[block_of(TPU_HART_CONSOLE_BASE)] = &console_;
  core_blocks_[block_of(TPU_HART_SEQ_BASE)] = &seq_isock;
  core_blocks_[block_of(TPU_HART_SEM_BASE)] = &sem_isock;
  core_blocks_[block_of(TPU_HART_FAULT_BASE)] = &fault_isock;
  core_blocks_[block_of(TPU_HART_PERF_BASE)] = &perf_isock;

  SC_METHOD(done_method);
  sensitive << done_i.pos();
  dont_initialize();
  SC_METHOD(fault_method);
  sensitive << fault_i.pos();
  dont_initialize();
  SC_METHOD(drained_method);
  sensitive << drained_i.pos();
  dont_initialize();
  SC_METHOD(call_method);
  sensitive << call_i.pos();
  dont_initialize();
}

void Mgmt::visit_state(spec::Archive& archive) {
  archive.bytes(itcm_.data(), itcm_.size());
  archive.bytes(dtcm_.data(), dtcm_.size());
  archive(irq_, page_, infeed_, console_, timer_, gsync_, host_dma_, hart_unit_);
  if (archive.loading()) {
    tcm_changed(TPU_HART_ITCM_BASE, itcm_.size());
  }
}

uint64_t Mgmt::silent() const {
  if (hart_unit_.awake() || host_dma_.busy()) {
    return 0;
  }
  return std::min(timer_.next_alarm(), gsync_.silent());
}

// ---- host side

void Mgmt::b_transport_host(tlm::tlm_generic_payload& txn, sc_core::sc_time& /*delay*/) {
  txn.set_response_status(tlm::TLM_OK_RESPONSE);
  const std::span<uint8_t> data(txn.get_data_ptr(), txn.get_data_length());
  if (txn.get_address() >= kCoreLoadWindow) {
    if (!txn.is_write() || !load_window(txn.get_address() - kCoreLoadWindow, data)) {
      txn.set_response_status(tlm::TLM_ADDRESS_ERROR_RESPONSE);
    }
    return;
  }
  uint32_t value = 0;
  if (data.size() != sizeof value) {
    txn.set_response_status(tlm::TLM_BURST_ERROR_RESPONSE);
    return;
  }
  const auto offset = static_cast<uint32_t>(txn.get_address());
  if (txn.is_write()) {
    std::memcpy(&value, data.data(), sizeof value);
    page_.host_write(offset, value);
  } else {
    value = page_.host_read(offset);
    std::memcpy(data.data(), &value, sizeof value);
  }
}

bool Mgmt::load_window(uint64_t offset, std::span<const uint8_t> data) {
  if (hart_unit_.running()) {
    return false;
  }
  const uint64_t end = offset + data.size();
  if (end <= itcm_.size()) {
    std::copy(data.begin(), data.end(), itcm_.begin() + static_cast<int64_t>(offset));
    tcm_changed(TPU_HART_ITCM_BASE + offset, data.size());
    return true;
  }
  if (offset >= itcm_.size() && end <= itcm_.size() + dtcm_.size()) {
    std::copy(data.begin(), data.end(),
              dtcm_.begin() + static_cast<int64_t>(offset - itcm_.size()));
    return true;
  }
  return false;
}

// ---- hart side

void Mgmt::b_transport_bus(tlm::tlm_generic_payload& txn, sc_core::sc_time& /*delay*/) {
  const auto address = static_cast<uint32_t>(txn.get_address());
  const std::span<uint8_t> data(txn.get_data_ptr(), txn.get_data_length());
  bool done = false;
  if (address >= TPU_HART_HBM_WINDOW_BASE) {
    done = bus_hbm_window(address - TPU_HART_HBM_WINDOW_BASE, data, txn.is_write());
  } else if (data.size() == sizeof(uint32_t)) {
    uint32_t value = 0;
    std::memcpy(&value, data.data(), sizeof value);
    done = bus_register(address, txn.is_write(), value);
    std::memcpy(data.data(), &value, sizeof value);
  }
  txn.set_response_status(done ? tlm::TLM_OK_RESPONSE : tlm::TLM_ADDRESS_ERROR_RESPONSE);
}

bool Mgmt::bus_register(uint32_t address, bool write, uint32_t& value) {
  const uint32_t block = block_of(address);
  const uint32_t offset = address % TPU_HART_MMIO_BLOCK_BYTES;
  if (block >= blocks_.size() || address % sizeof value != 0) {
    return false;
  }
  if (blocks_[block] != nullptr) {
    return write ? blocks_[block]->write(offset, value) : blocks_[block]->read(offset, value);
  }
  return core_blocks_[block] != nullptr &&
         forward(*core_blocks_[block], offset, {reinterpret_cast<uint8_t*>(&value), sizeof value},
                 write);
}

// The sequencer looks at what describes a launch while a program runs.
bool Mgmt::untimed(const MmioAccess& access) {
  const uint32_t block = block_of(access.addr);
  const uint32_t offset = access.addr % TPU_HART_MMIO_BLOCK_BYTES;
  if (block >= blocks_.size()) {
    return false;
  }
  if (blocks_[block] != nullptr) {
    return blocks_[block]->untimed(offset, access.write);
  }
  const uint8_t row = spec::seq::kTableIndex[offset / 4];
  if (core_blocks_[block] != &seq_isock || !access.write || offset % 4 != 0 ||
      row == spec::kNoRegister || !spec::seq::kTable[row].untimed_write) {
    return false;
  }
  const uint32_t state = core_register(seq_isock, spec::seq::kState);
  return (state & spec::seq::kStateBusyMask) == 0 &&
         (state & spec::seq::kStateCodeMask) != spec::seq::kStateRunning;
}

bool Mgmt::bus_hbm_window(uint32_t offset, std::span<uint8_t> data, bool write) {
  HbmIf& hbm = *fabric_.hbm[place_.core];
  const uint64_t at = page_.hbm_window() + offset;
  if (at > hbm.bytes() || data.size() > hbm.bytes() - at) {
    return false;
  }
  write ? hbm.write(at, data) : hbm.read(at, data);
  return true;
}

uint32_t Mgmt::core_register(CoreSocket& socket, uint64_t offset) {
  uint32_t value = 0;
  forward(socket, offset, {reinterpret_cast<uint8_t*>(&value), sizeof value}, false);
  return value;
}

bool Mgmt::forward(CoreSocket& socket, uint64_t address, std::span<uint8_t> data, bool write) {
  return core_bus_.perform(socket, address, data, write);
}

// ---- lines of the core

void Mgmt::done_method() { irq_.raise(spec::irq::kProgramDone); }

// The gang hears of it even when the hart does not.
void Mgmt::fault_method() {
  gsync_.abort_running(spec::gsync::kCodeFault);
  irq_.raise(spec::irq::kEngineFault);
}

void Mgmt::drained_method() { irq_.raise(spec::irq::kEnginesIdle); }

void Mgmt::call_method() { irq_.raise(spec::irq::kHostCall); }

void Mgmt::hart_died() {
  console_.flush();
  constexpr uint32_t kMcause = 0x342;
  constexpr uint32_t kMepc = 0x341;
  constexpr uint32_t kMtval = 0x343;
  const uint32_t number = page_.page_reg(spec::core_page::kFaultSeq) + 1;
  tpu_fault_record_t record{};
  record.fault_seq = number;
  record.code = TPU_FAULT_FW_TRAP;
  record.engine = static_cast<uint8_t>(spec::fault::kEngineHart);
  record.core = static_cast<uint16_t>(place_.core);
  record.cycle = now_cycles();
  record.op_id = TPU_OP_NONE;
  record.launch_id = core_register(seq_isock, spec::seq::kLaunch);
  record.step = core_register(seq_isock, spec::seq::kStep);
  if (hart_unit_.lost()) {
    record.hart_mepc = hart_unit_.hart().pc();
    record.detail = TPU_STATUS_TIMEOUT;
  } else {
    record.hart_mepc = hart_unit_.hart().csr(kMepc);
    record.hart_mcause = hart_unit_.hart().csr(kMcause);
    record.hart_mtval = hart_unit_.hart().csr(kMtval);
  }
  record.origin = record.core;
  std::array<uint32_t, sizeof record / sizeof(uint32_t)> words;
  std::memcpy(words.data(), &record, sizeof record);
  page_.set_record(words);
  page_.set_page_reg(spec::core_page::kFaultSeq, number);
  page_.set_page_reg(spec::core_page::kFwState, spec::core_page::kStateDead);
  gsync_.abort_running(spec::gsync::kCodeHart);
  send_msi(spec::chip_page::kMsiEvent);
  send_msi(spec::chip_page::kMsiChip);
}

// ---- CorePageOwner

void Mgmt::core_reset() {
  hart_unit_.set_run(false, TPU_HART_ROM_BASE);
  console_.flush();
  page_.reset();
  irq_.reset();
  timer_.reset();
  infeed_.reset();
  gsync_.reset();
  host_dma_.reset();
  uint32_t one = 1;
  forward(seq_isock, spec::seq::kReset, {reinterpret_cast<uint8_t*>(&one), sizeof one}, true);
}

void Mgmt::hart_run(bool run) { hart_unit_.set_run(run, TPU_HART_ROM_BASE); }
void Mgmt::debug_halt(bool halt) { hart_unit_.set_halt(halt); }
void Mgmt::doorbell() { irq_.raise(spec::irq::kDoorbell); }
void Mgmt::host_request() { irq_.raise(spec::irq::kHost); }
void Mgmt::host_abort(uint32_t tag) { gsync_.abort_if_tag(tag, spec::gsync::kCodeHost); }

// 0 and 1 are this core's pair, anything else the chip's vector.
void Mgmt::send_msi(uint32_t vector) {
  const uint32_t number =
      vector <= spec::chip_page::kMsiEvent ? 2 * place_.local + vector : spec::chip_page::kMsiChip;
  host_port->post_msi(static_cast<int>(number));
}

// ---- GsyncOwner, HostDmaOwner

void Mgmt::stop_sequencer() {
  uint32_t one = 1;
  forward(seq_isock, spec::seq::kAbort, {reinterpret_cast<uint8_t*>(&one), sizeof one}, true);
}

std::span<std::byte> Mgmt::tcm(uint64_t address, uint64_t bytes) {
  for (const auto& [base, memory] :
       {Memory{TPU_HART_ITCM_BASE, &itcm_}, Memory{TPU_HART_DTCM_BASE, &dtcm_}}) {
    if (address >= base && address - base <= memory->size() &&
        bytes <= memory->size() - (address - base)) {
      return std::as_writable_bytes(std::span(*memory).subspan(address - base, bytes));
    }
  }
  return {};
}

void Mgmt::tcm_changed(uint64_t address, uint64_t bytes) {
  hart_unit_.hart().memory_changed(static_cast<uint32_t>(address), static_cast<uint32_t>(bytes));
}

spec::CoreSet Mgmt::gang_of_rows() {
  namespace seq = spec::seq;
  const uint32_t rows = std::min(
      core_register(seq_isock, seq::kReplica) >> seq::kReplicaGangRowsShift, TPU_GANG_ROWS);
  const uint32_t row = core_register(seq_isock, seq::kSlotCount);
  if (rows == 0 || row + rows > seq::kSlotEntries) {
    return {};
  }
  std::vector<uint32_t> words(size_t{rows} * TPU_GANG_ROW_BYTES / sizeof(uint32_t));
  const uint64_t at = uint64_t{core_register(seq_isock, seq::kSlotBank)} * seq::kSlotBankBytes +
                      uint64_t{row} * seq::kSlotEntryBytes;
  forward(slots_isock, at,
          {reinterpret_cast<uint8_t*>(words.data()), words.size() * sizeof(uint32_t)}, false);
  return spec::CoreSet(words);
}

bool Mgmt::write_slots(uint64_t offset, std::span<const std::byte> data) {
  std::vector<uint8_t> copy(data.size());
  std::memcpy(copy.data(), data.data(), data.size());
  return forward(slots_isock, offset, copy, true);
}

std::vector<uint32_t> Mgmt::stack(size_t most) const {
  constexpr unsigned kStackPointer = 2;
  const uint32_t offset = hart().reg(kStackPointer) - TPU_HART_DTCM_BASE;
  std::vector<uint32_t> words;
  if (offset % sizeof(uint32_t) == 0 && offset < dtcm_.size()) {
    words.resize(std::min(most, (dtcm_.size() - offset) / sizeof(uint32_t)));
    std::memcpy(words.data(), dtcm_.data() + offset, words.size() * sizeof(uint32_t));
  }
  return words;
}

}  // namespace tpu::model
