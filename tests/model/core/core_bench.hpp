// Test bench of the core: any number of cores with their HBM and interconnect, driven through
// register sockets as the control harts would. No harts, no PCIe.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <systemc>
#include <tlm>
#include <vector>

#include "../finding_text.hpp"
#include "board/board_loader.hpp"
#include "core/core.hpp"
#include "hbm/hbm.hpp"
#include "ici/ici.hpp"
#include "kernel/cycles.hpp"
#include "message_wire.hpp"
#include "mxu/mxu_scalar.hpp"
#include "probe/race_sink.hpp"
#include "program_builder.hpp"
#include "tpu/spec/fault_regs.hpp"
#include "tpu/spec/rings.h"
#include "tpu/spec/sem_regs.hpp"
#include "tpu/spec/seq_regs.hpp"

namespace tpu::model::test {

// Commands that are done, and marks.
class RecordingSink final : public ProbeSink {
 public:
  void done(const DoneEvent& event) override { commands.push_back(event); }
  void mark(const MarkEvent& event) override { marks.push_back(event); }
  std::vector<DoneEvent> commands;
  std::vector<MarkEvent> marks;
};

struct BenchOptions {
  std::vector<std::string> overrides = {};
  int threads = 1;
  JobTime jobs = JobTime::kSoon;
  bool no_data = false;
  bool trace = true;
  bool check = false;
  VerilogMode verilog = VerilogMode::kModel;  // of semaphores and DMA queues
  uint64_t schedule_seed = 0;
  bool messages = false;  // cores reach each other by serialized messages alone
  // Of the matrix unit at this path; null: a scalar one.
  std::function<std::unique_ptr<MxuEngine>(const std::string& path)> make_engine = {};
};

class CoreBench : public sc_core::sc_module {
 public:
  using Options = BenchOptions;

  explicit CoreBench(sc_core::sc_module_name name, const Options& options = {})
      : sc_module(name),
        params(spec::load_board("v3_8", options.overrides)),
        pool(options.threads, options.jobs),
        programs(params),
        checker(params) {
    if (options.trace) {
      probes.add(sink, {ProbeEvent::kDone, ProbeEvent::kMark});
    }
    if (options.check) {
      checker.listen(probes);
    }
    const auto cores_per_chip = static_cast<size_t>(params.board.cores_per_chip);
    const CoreServices services{
        .agenda = agenda,
        .activity = activity,
        .pool = pool,
        .equal_writes = equal_writes,
        .fluid = fluid,
        .programs = programs,
        .steps = steps,
        .probes = probes,
        .no_data = options.no_data,
        .schedule_seed = options.schedule_seed,
        .verilog =
            [this, mode = options.verilog](const std::string& path) {
              return VerilogUse{.mode = mode,
                                .compared = [this] { ++verilog_compared; },
                                .differs =
                                    [this, path](const std::string& text) {
                                      verilog_differences.push_back(path + ": " + text);
                                    }};
            },
        .make_mxu =
            [this, make = options.make_engine](const std::string& path) {
              mxu_paths.push_back(path);
              MxuUnit unit;
              unit.engine = make ? make(path) : nullptr;
              if (unit.engine == nullptr) {
                unit.engine = std::make_unique<MxuScalarEngine>(spec::mxu_shape(params));
              }
              return unit;
            }};
    for (size_t chip = 0; chip < static_cast<size_t>(spec::chip_count(params)); ++chip) {
      hbms.push_back(
          std::make_unique<Hbm>(("hbm" + std::to_string(chip)).c_str(), params, pages, fluid));
    }
    ici = std::make_unique<Ici>("ici", params, fluid);
    irqs.init(3 * hbms.size() * cores_per_chip);
    call_irqs.init(hbms.size() * cores_per_chip);
    for (uint32_t id = 0; id < hbms.size() * cores_per_chip; ++id) {
      HbmBank& bank = hbms[id / cores_per_chip]->bank(id % cores_per_chip);
      cores.push_back(std::make_unique<Core>(("core" + std::to_string(id)).c_str(), id, params,
                                             services, bank.bytes()));
      Core& core = *cores.back();
      core.hbm_port(bank);
      core.ici_port(*ici);
      if (options.messages) {
        auto& target = dynamic_cast<RemoteIf&>(*core.remote_export.get_interface());
        ici->connect(id, *wires.emplace_back(std::make_unique<MessageWire>(target)));
      } else {
        ici->connect(id, core.remote_export);
      }
      core.done_irq_o(irqs[3 * id]);
      core.fault_irq_o(irqs[3 * id + 1]);
      core.drained_irq_o(irqs[3 * id + 2]);
      core.call_irq_o(call_irqs[id]);
      bind(bank.mem_tsock);
      for (RegisterSocket* socket : {&core.seq().csr_tsock, &core.sem().csr_tsock,
                                     &core.fault().csr_tsock, &core.perf().csr_tsock}) {
        bind(*socket);
      }
      for (LocalMemory* memory :
           {&core.vmem(), &core.smem(), static_cast<LocalMemory*>(&core.slots())}) {
        bind(memory->mem_tsock);
      }
    }
  }

  // Socket numbers of a core, in the order of binding.
  enum Port : size_t { kHbm, kSeq, kSem, kFault, kPerf, kVmem, kSmem, kSlots, kPorts };

  void access(uint32_t core, Port port, bool write, uint64_t address, void* data, size_t bytes) {
    if (!elaborated_) {
      elaborated_ = true;
      sc_core::sc_start(sc_core::SC_ZERO_TIME);
    }
    tlm::tlm_generic_payload txn;
    sc_core::sc_time delay;
    txn.set_command(write ? tlm::TLM_WRITE_COMMAND : tlm::TLM_READ_COMMAND);
    txn.set_address(address);
    txn.set_data_ptr(static_cast<unsigned char*>(data));
    txn.set_data_length(static_cast<unsigned>(bytes));
    txn.set_streaming_width(static_cast<unsigned>(bytes));
    (*sockets_[core * kPorts + port])->b_transport(txn, delay);
    if (txn.get_response_status() != tlm::TLM_OK_RESPONSE) {
      throw std::runtime_error("access refused: " + txn.get_response_string());
    }
  }
  void write32(uint32_t core, Port port, uint32_t offset, uint32_t value) {
    access(core, port, true, offset, &value, sizeof value);
  }
  uint32_t read32(uint32_t core, Port port, uint32_t offset) {
    uint32_t value = 0;
    access(core, port, false, offset, &value, sizeof value);
    return value;
  }
  template <typename T>
  void write(uint32_t core, Port port, uint64_t address, const std::vector<T>& data) {
    access(core, port, true, address, const_cast<T*>(data.data()), data.size() * sizeof(T));
  }
  template <typename T>
  std::vector<T> read(uint32_t core, Port port, uint64_t address, size_t count) {
    std::vector<T> data(count);
    access(core, port, false, address, data.data(), count * sizeof(T));
    return data;
  }

  // Slot `index` of bank 0: `bytes` at HBM address `base`.
  void bind_slot(uint32_t core, uint32_t index, uint64_t base, uint64_t bytes,
                 uint8_t mode = TPU_SLOT_FIXED, uint8_t flags = 0) {
    tpu_slot_entry_t e{};
    e.base = base, e.size = bytes, e.mode = mode, e.flags = flags;
    access(core, kSlots, true, uint64_t{index} * sizeof e, &e, sizeof e);
  }
  // Loads the image at kImage and sets identity registers; `start` then runs it.
  void load(uint32_t core, const std::vector<uint8_t>& image, uint32_t slots, uint32_t mask,
            uint32_t tag = 7) {
    write(core, kHbm, kImage, image);
    write32(core, kSeq, spec::seq::kProgramLo, static_cast<uint32_t>(kImage));
    write32(core, kSeq, spec::seq::kProgramHi, static_cast<uint32_t>(kImage >> 32));
    write32(core, kSeq, spec::seq::kProgramVersion, ++version_);
    write32(core, kSeq, spec::seq::kSlotBank, 0);
    write32(core, kSeq, spec::seq::kSlotCount, slots);
    write32(core, kSeq, spec::seq::kReplica, core);
    write32(core, kSeq, spec::seq::kCores, static_cast<uint32_t>(cores.size()));
    write32(core, kSeq, spec::seq::kMask, mask);
    write32(core, kSeq, spec::seq::kTag, tag);
  }
  void start(uint32_t core) { write32(core, kSeq, spec::seq::kStart, 1); }
  uint32_t state(uint32_t core) {
    return read32(core, kSeq, spec::seq::kState) & spec::seq::kStateCodeMask;
  }
  tpu_fault_record_t fault_record(uint32_t core) {
    tpu_fault_record_t record{};
    access(core, kFault, false, spec::fault::kRecord, &record, sizeof record);
    return record;
  }
  ~CoreBench() override { pool.drain(); }  // before what jobs touch goes
  // Runs until nothing is in flight.
  void run() {
    while (true) {
      sc_core::sc_start(from_cycles(quantum));
      if (activity.quiet()) {
        return;
      }
    }
  }
  const DoneEvent& traced(uint32_t core, spec::Queue queue, size_t index = 0) const {
    for (const DoneEvent& c : sink.commands) {
      if (c.source.core == core && c.source.unit == static_cast<uint32_t>(queue) && index-- == 0) {
        return c;
      }
    }
    throw std::runtime_error("no such command in the trace");
  }
  uint64_t cycles(int64_t ns) const { return spec::cycles_from_ns(params, ns); }

  static constexpr uint64_t kImage = uint64_t{5} << 30;  // above 4 GiB
  uint64_t quantum = 1'000'000;
  spec::BoardParams params;
  Agenda agenda{"agenda"};
  Activity activity;
  JobPool pool;
  EqualWrites equal_writes{pool};
  PagePool pages;
  FluidShare fluid{"fluid", agenda};
  ProgramCache programs;
  StepCounter steps;
  ProbeSet probes;
  RaceSink checker;
  RecordingSink sink;
  std::vector<std::string> mxu_paths;
  uint64_t verilog_compared = 0;
  std::vector<std::string> verilog_differences;
  std::vector<std::unique_ptr<Hbm>> hbms;
  std::unique_ptr<Ici> ici;
  std::vector<std::unique_ptr<MessageWire>> wires;  // by core
  sc_core::sc_vector<sc_core::sc_signal<bool>> irqs{"irqs"};
  sc_core::sc_vector<sc_core::sc_signal<bool>> call_irqs{"call_irqs"};
  std::vector<std::unique_ptr<Core>> cores;

 private:
  using Initiator = tlm_utils::simple_initiator_socket<CoreBench>;

  template <typename Target>
  void bind(Target& target) {
    sockets_.push_back(
        std::make_unique<Initiator>(("isock" + std::to_string(sockets_.size())).c_str()));
    sockets_.back()->bind(target);
  }

  std::vector<std::unique_ptr<Initiator>> sockets_;
  uint32_t version_ = 0;
  bool elaborated_ = false;
};

}  // namespace tpu::model::test
