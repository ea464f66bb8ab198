// Wiring of a TensorCore, and what it offers to its peers and to debuggers.
#include "core/core.hpp"

#include <algorithm>
#include <cstring>

#include "tpu/spec/fault_regs.hpp"
#include "tpu/spec/rings.h"
#include "tpu/spec/seq_regs.hpp"

namespace tpu::model {

namespace {

// Calls `visit` with the offset of each run of the write, in their order.
template <class Visit>
void visit_runs(const RemoteWrite& write, const Visit& visit) {
  std::array<uint64_t, RemoteWrite::kMaxLevels> index{};
  for (int64_t level = 0; level >= 0;) {
    int64_t offset = 0;
    for (size_t l = 0; l < write.levels; ++l) {
      offset += static_cast<int64_t>(index[l]) * write.stride[l];
    }
    visit(offset);
    for (level = static_cast<int64_t>(write.levels) - 1; level >= 0; --level) {
      const auto l = static_cast<size_t>(level);
      if (++index[l] < write.count[l]) {
        break;
      }
      index[l] = 0;
    }
  }
}

void write_runs(const RemoteWrite& write, const RemotePlace& place, uint64_t base,
                std::span<const uint8_t> data) {
  visit_runs(write, [&](int64_t offset) {
    const std::span<const uint8_t> run = data.first(write.run_bytes);
    const uint64_t at = base + static_cast<uint64_t>(offset);
    if (place.hbm != nullptr) {
      place.hbm->write(at, run);
    } else {
      place.order->wait(at, at + run.size(), true);
      std::memcpy(place.memory + offset, run.data(), run.size());
    }
    data = data.subspan(run.size());
  });
}

}  // namespace

Core::Core(sc_core::sc_module_name name, uint32_t core_id, const spec::BoardParams& params,
           const CoreServices& services, uint64_t hbm_bytes)
    : sc_module(name),
      core_id_(core_id),
      params_(params),
      probe_(services.probes, core_id),
      local_bandwidth_(
          services.fluid.add_resource(static_cast<uint64_t>(params.dma.local_bytes_per_cycle), 1)) {
  make_memories(hbm_bytes, services.pool);
  if (services.fold != nullptr) {
    launch_.beyond = services.fold->board_cores();
  }
  if (services.no_data) {
    smem_unknown_.assign(smem_->bytes() / 4, false);
  }
  seq_ = std::make_unique<Sequencer>("seq", core_id, params_, services.agenda, services.activity,
                                     probe_, launch_);
  sem_ = std::make_unique<Semaphores>("sem", core_id, params_, services.agenda, services.activity,
                                      probe_, verilog_use(services, "sem"));
  make_engines(services);
  fault_ = std::make_unique<FaultUnit>("fault", core_id, launch_, queues_, probe_,
                                       [this] { seq_->on_fault(); });
  perf_ = std::make_unique<PerfUnit>("perf", [this] { return counters(); });
  engines_ = {vpu_.get(), xlu_.get()};
  for (auto& mxu : mxus_) {
    engines_.push_back(mxu.get());
  }
  for (auto& dma : dmas_) {
    dma->hbm_port(hbm_port);
    engines_.push_back(dma.get());
  }
  for (Engine* engine : engines_) {
    bind_engine(*engine);
  }
  sem_->fault_port(*fault_);
  seq_->fault_port(*fault_);
  seq_->hbm_port(hbm_port);
  seq_->done_irq_o(done_irq_o);
  seq_->fault_irq_o(fault_irq_o);
  seq_->drained_irq_o(drained_irq_o);
  seq_->call_irq_o(call_irq_o);
  seq_->connect({.queues = queues_,
                 .semaphores = sem_.get(),
                 .smem = smem_.get(),
                 .slots = slots_.get(),
                 .programs = &services.programs,
                 .steps = &services.steps,
                 .fold = services.fold,
                 .smem_unknown = services.no_data ? &smem_unknown_ : nullptr,
                 .hung = &faulty_.hung[kSequencerUnit],
                 .sram = &faulty_.sram,
                 .gang_work = [this] { return gang_work(); },
                 .ask_boards = [this](const CutIf::Told& told) { return ask_boards(told); },
                 .behind_cut = [this](uint32_t core) { return ici_port->behind_cut(core); }});
  remote_export(static_cast<RemoteIf&>(*this));
}

Core::~Core() = default;

VerilogUse Core::verilog_use(const CoreServices& services, std::string_view block) const {
  if (!services.verilog) {
    return {};
  }
  const std::string path = std::string(name()) + "." + std::string(block);
  return also_telling(services.verilog(path), [this, path] {
    probe_.assertion(
        [&] { return AssertionEvent{.cycle = now_cycles(), .core = core_id_, .path = path}; });
  });
}

void Core::make_memories(uint64_t hbm_bytes, JobPool& pool) {
  vmem_ =
      std::make_unique<LocalMemory>("vmem", static_cast<uint64_t>(params_.core.vmem_kib) * 1024);
  smem_ =
      std::make_unique<LocalMemory>("smem", static_cast<uint64_t>(params_.core.smem_kib) * 1024);
  slots_ = std::make_unique<Slots>("slots", hbm_bytes);
  copies_ = std::make_unique<DeferredCopies>(vmem_->data(), vmem_->bytes(), vmem_->order(), pool);
  vmem_->set_look([this](uint64_t low, uint64_t high) { copies_->settle(low, high); });
}

void Core::make_engines(const CoreServices& services) {
  const EngineContext context{.core_id = core_id_,
                              .params = params_,
                              .agenda = services.agenda,
                              .activity = services.activity,
                              .pool = services.pool,
                              .copies = *copies_,
                              .vmem_order = vmem_->order(),
                              .equal_writes = services.equal_writes,
                              .probe = probe_,
                              .launch = launch_,
                              .hung = faulty_.hung,
                              .sram = faulty_.sram,
                              .no_data = services.no_data,
                              .schedule_seed = services.schedule_seed};
  const auto slot_of = [](spec::Queue queue) { return static_cast<size_t>(queue); };
  for (size_t i = 0; i < static_cast<size_t>(params_.core.mxus); ++i) {
    const std::string unit = "mxu" + std::to_string(i);
    mxus_.push_back(std::make_unique<Mxu>(unit.c_str(), spec::kMxuQueues[i], context, vmem_->data(),
                                          vmem_->bytes(),
                                          services.make_mxu(std::string(name()) + "." + unit)));
    queues_[slot_of(spec::kMxuQueues[i])] = mxus_.back().get();
  }
  vpu_ = std::make_unique<Vpu>("vpu", context, vmem_->data(), vmem_->bytes(), services.vpu_simd);
  queues_[slot_of(spec::Queue::kVpu)] = vpu_.get();
  xlu_ = std::make_unique<Xlu>("xlu", context, vmem_->data(), vmem_->bytes());
  queues_[slot_of(spec::Queue::kXlu)] = xlu_.get();
  const DmaResources resources{.vmem = vmem_->data(),
                               .vmem_bytes = vmem_->bytes(),
                               .smem = smem_->data(),
                               .smem_bytes = smem_->bytes(),
                               .smem_order = &smem_->order(),
                               .smem_unknown = services.no_data ? &smem_unknown_ : nullptr,
                               .slots = slots_.get(),
                               .fluid = &services.fluid,
                               .local = local_bandwidth_};
  for (const spec::Queue queue :
       {spec::Queue::kDmaIn, spec::Queue::kDmaOut, spec::Queue::kDmaRemote}) {
    dmas_.push_back(
        std::make_unique<Dma>(spec::kQueueNames[slot_of(queue)].data(), queue, context, resources,
                              verilog_use(services, spec::kQueueNames[slot_of(queue)])));
    queues_[slot_of(queue)] = dmas_.back().get();
  }
}

void Core::bind_engine(Engine& engine) {
  engine.sem_port(*sem_);
  engine.fault_port(*fault_);
  engine.ici_port(ici_port);
}

// Write or signal of a peer: taken while its gang is the one bound here, from the barrier in front
// of its step (which a peer may leave first) until this core has ended that step.
RemoteAnswer::Status Core::accept_remote(GangStep from) {
  using Status = RemoteAnswer::Status;
  const auto older = [](uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; };
  if (older(launch_.tag, from.tag)) {
    FaultInfo info;
    info.code = TPU_FAULT_REMOTE_STRAY;
    info.detail = spec::fault::kDetailTagUnknown;
    info.address = from.tag;
    fault_->raise(info, "packet of gang " + std::to_string(from.tag) + " arrived, bound is " +
                            std::to_string(launch_.tag));
    return Status::kStray;
  }
  if (from.tag == launch_.tag && launch_.tag_open && !older(from.step, launch_.first_open_step)) {
    return Status::kOk;
  }
  sem_->count_stale();
  const bool aborted = from.tag == launch_.tag && !launch_.tag_open;
  return aborted ? Status::kDropped : Status::kEnded;
}

// What the gang is past (kEnded) or what does not fit is never sent; all else passes the links.
RemoteAnswer Core::remote_open(const RemoteWrite& write, RemotePlace* place) {
  using Status = RemoteAnswer::Status;
  RemoteAnswer answer{.status = accept_remote(write.from)};
  if (answer.status == Status::kOk) {
    answer = place_remote(write, place);
    launch_.inbound += answer.status == Status::kOk ? 1 : 0;
  }
  const bool in_smem = write.address.space == static_cast<uint8_t>(spec::Space::kSmem);
  if (answer.status == Status::kOk && in_smem && !smem_unknown_.empty()) {
    mark_unknown(smem_unknown_, answer.base + static_cast<uint64_t>(write.low),
                 static_cast<uint64_t>(write.high - write.low));
  }
  if (answer.status == Status::kOk || answer.status == Status::kDropped ||
      answer.status == Status::kStray) {
    probe_.received(write.bytes);
  }
  return answer;
}

RemoteAnswer Core::place_remote(const RemoteWrite& write, RemotePlace* place) {
  using Status = RemoteAnswer::Status;
  RemoteAnswer answer{.status = Status::kOk, .base = static_cast<uint64_t>(write.address.offset)};
  const auto space = static_cast<spec::Space>(write.address.space);
  const bool in_hbm = space == spec::Space::kHbm;
  LocalMemory& memory = space == spec::Space::kVmem ? *vmem_ : *smem_;
  const Slots::Range slot =
      in_hbm ? slots_->resolve(launch_, write.address.slot) : Slots::Range{true, 0, memory.bytes()};
  answer.size = slot.ok ? slot.size : 0;
  answer.base += slot.base;
  const __int128 at = write.address.offset;
  if (at + write.low < 0 || at + write.high > static_cast<__int128>(answer.size)) {
    answer.status = in_hbm ? Status::kBadSlot : Status::kBadRange;
  } else if (in_hbm) {
    answer.bandwidth = hbm_port->bandwidth();
    place->hbm = hbm_port.operator->();
    place->order = &place->hbm->order();
  } else {
    place->memory = memory.data() + answer.base;
    place->order = &memory.order();
    if (space == spec::Space::kVmem) {
      // A core that writes to itself may read there, or turn out to change nothing.
      const bool whole = write.from_core != write.to_core &&
                         static_cast<int64_t>(write.bytes) == write.high - write.low;
      copies_->write(answer.base + static_cast<uint64_t>(write.low),
                     answer.base + static_cast<uint64_t>(write.high), whole);
    }
  }
  return answer;
}

// Bytes that came as a message are written here; else the sender's job has written them.
void Core::remote_landed(const RemoteWrite& write, std::span<const uint8_t> data) {
  bool written = data.empty() && write.at != 0;  // else it was given up
  if (!data.empty() && accept_remote(write.from) == RemoteAnswer::Status::kOk) {
    RemotePlace place;
    const RemoteAnswer answer = place_remote(write, &place);
    if (answer.status == RemoteAnswer::Status::kOk) {
      write_runs(write, place, answer.base, data);
      written = true;
    } else {  // the place has gone since the write began
      sem_->count_stale();
    }
  }
  const auto space = static_cast<spec::Space>(write.address.space);
  if (written && space != spec::Space::kHbm && faulty_.sram.any()) {
    visit_runs(write, [&](int64_t offset) {
      faulty_.sram.written(space == spec::Space::kVmem ? ProbeMemory::kVmem : ProbeMemory::kSmem,
                           static_cast<uint64_t>(write.address.offset + offset), write.run_bytes);
    });
  }
  --launch_.inbound;
  if (launch_.settled()) {
    seq_->on_landed();
  }
}

RemoteAnswer Core::remote_signal(const RemoteSignal& signal) {
  const RemoteAnswer answer{.status = accept_remote(signal.from)};
  if (answer.status == RemoteAnswer::Status::kOk) {
    sem_->add(signal.semaphore, signal.value);
    probe_.signal_received();
  }
  return answer;
}

uint64_t Core::remote_base(const RemoteWrite& write) const {
  const bool in_hbm = write.address.space == static_cast<uint8_t>(spec::Space::kHbm);
  const Slots::Range slot =
      in_hbm ? slots_->resolve(launch_, write.address.slot) : Slots::Range{true, 0, 0};
  return slot.base + static_cast<uint64_t>(write.address.offset);
}

void Core::await_answers(int change) {
  launch_.unanswered += static_cast<uint32_t>(change);
  if (launch_.settled()) {
    seq_->on_landed();
  }
}

bool Core::work_in_flight() const {
  return seq_->calls_host() || !launch_.settled() ||
         std::ranges::any_of(queues_, [](const CommandQueueIf* queue) {
           return queue != nullptr && queue->in_flight();
         });
}

GangWork Core::gang_work() {
  GangWork work{.done = work_done(), .in_flight = work_in_flight()};
  launch_.gang.for_each([&](uint32_t core) {
    if (core != core_id_ && core < ici_port->cores() && !ici_port->behind_cut(core)) {
      const RemoteIf& peer = ici_port->peer(core);
      work.done += peer.work_done();
      work.in_flight = work.in_flight || peer.work_in_flight();
    }
  });
  return work;
}

bool Core::ask_boards(const CutIf::Told& told) {
  struct Answers {
    uint32_t missing = 0;
    GangWork work;
  };
  const auto answers = std::make_shared<Answers>();
  launch_.gang.for_each([&](uint32_t core) {
    if (!ici_port->behind_cut(core)) {
      return;
    }
    ++answers->missing;  // an answer takes its time
    ici_port->cut()->ask(core_id_, core, [answers, told](const GangWork& work) {
      answers->work.done += work.done;
      answers->work.in_flight = answers->work.in_flight || work.in_flight;
      if (--answers->missing == 0) {
        told(answers->work);
      }
    });
  });
  return answers->missing != 0;
}

void Core::settle_data() {
  copies_->finish();
  for (Engine* engine : engines_) {
    engine->settle_data();
  }
}

bool Core::quiet() const {
  for (const CommandQueueIf* queue : queues_) {
    if (queue != nullptr && !queue->idle()) {
      return false;
    }
  }
  return seq_->state() != spec::seq::kStateRunning && sem_->settled();
}

void Core::visit_state(spec::Archive& archive) {
  settle_data();
  archive(launch_, probe_, *seq_, *sem_, *fault_, *perf_, *slots_, *smem_, *vmem_);
  archive.fixed(smem_unknown_);
  for (Engine* engine : engines_) {
    archive(*engine);
  }
}
}  // namespace tpu::model
