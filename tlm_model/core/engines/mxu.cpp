// Matmul commands: checks, time, data.
#include "core/engines/mxu.hpp"

#include <algorithm>
#include <utility>

#include "core/operand_check.hpp"
#include "core/overlap.hpp"
#include "kernel/cycles.hpp"
#include "kernel/host_profile.hpp"
#include "tpu/spec/fault_regs.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model {
namespace {

constexpr int64_t kQuickTerms = 100'000;

}  // namespace

void Mxu::Work::prepare(MxuEngine& engine, const MxuJob& job, MxuCut cut,
                        std::array<bool, 2> held) {
  engine_ = &engine;
  vmem_ = nullptr;
  upsets_.clear();
  scan_ = {};
  mismatch_ = false;
  cut_ = cut;
  jobs_.assign(1, job);
  set_parts(1);
  set_group(engine.group(job));
  const bool quick = engine.splittable() && job.terms() <= kQuickTerms;
  set_quick(quick);
  held_ = held;
  packs_ = engine.shares_operands() && !quick;
  if (packs_) {
    packed_.begin(jobs_, held[0], held[1]);
  }
  parts_left_ = 1;
}

int Mxu::Work::split(int parts) {
  jobs_ = mxu_split(jobs_.front(), cut_, parts);
  if (packs_) {
    packed_.begin(jobs_, held_[0], held_[1]);
  }
  parts_left_ = jobs_.size();
  return static_cast<int>(jobs_.size());
}

void Mxu::Work::run_part(int part) {
  const MxuJob& job = jobs_[static_cast<size_t>(part)];
  const HostTimer timer(HostWork::kMxu, static_cast<uint64_t>(2 * job.terms()));
  if (jobs_.size() > 1) {
    engine_->run(job);
    end_part();
    return;
  }
  const uint64_t before = engine_->mismatches();
  if (upsets_.empty()) {
    engine_->run(job);
  } else {
    engine_->run_upset(job, upsets_.front());
    for (size_t i = 1; i < upsets_.size(); ++i) {
      mxu_flip(job, upsets_[i]);  // lockstep differs by the first one
    }
  }
  mismatch_ = engine_->mismatches() != before;
  mismatch_text_ = mismatch_ ? engine_->mismatch_text() : std::string();
  if (vmem_ != nullptr) {
    scan_.add(vmem_, out_, spec::Elem::kF32);
  }
  end_part();
}

// Packed operands are given back by the last part: the command may be forgotten much later.
void Mxu::Work::end_part() {
  if (packs_ && parts_left_.fetch_sub(1) == 1) {
    packed_.end();
  }
}

// Works of the same group are all of one part.
bool Mxu::Work::like(const Job& other) const {
  return mxu_same_rhs(jobs_.front(), static_cast<const Work&>(other).jobs_.front());
}

void Mxu::Work::run_together(std::span<Job* const> works) {
  thread_local std::vector<MxuJob> jobs;
  jobs.clear();
  uint64_t flops = 0;
  for (Job* each : works) {
    jobs.push_back(static_cast<Work*>(each)->jobs_.front());
    flops += static_cast<uint64_t>(2 * jobs.back().terms());
  }
  const HostTimer timer(HostWork::kMxu, flops);
  engine_->run_together(jobs);
  for (Job* each : works) {
    static_cast<Work*>(each)->end_part();
  }
}

Mxu::Mxu(sc_core::sc_module_name name, spec::Queue queue, const EngineContext& context,
         uint8_t* vmem, uint64_t vmem_bytes, MxuUnit unit)
    : Engine(name, queue, context),
      vmem_(vmem),
      vmem_bytes_(vmem_bytes),
      unit_(std::move(unit)),
      works_(context.pool, context.copies, flight_capacity()) {}

MxuEngine& Mxu::engine_for_step() {
  const uint64_t step = context().launch.job_step;
  const bool inside = step >= unit_.first_step && step <= unit_.last_step &&
                      (unit_.window == nullptr || *unit_.window);
  return inside || !unit_.outside ? *unit_.engine : *unit_.outside;
}

// The wrong results of a command; each command of an entry has another.
std::vector<MxuUpset> Mxu::take_upsets(const QueuedCommand& queued) {
  constexpr uint64_t kNext = 0x9E3779B97F4A7C15;
  std::vector<MxuUpset> found;
  for (Upset& upset : upsets_) {
    if (upset.sequence != 0 && upset.sequence != queued.sequence) {
      continue;
    }
    found.push_back(upset.of);
    upset.told(*queued.command, upset.of);
    upset.of.result += kNext;
    upset.sequence = 0;
    --upset.commands;
  }
  std::erase_if(upsets_, [](const Upset& upset) { return upset.commands == 0; });
  return found;
}

void Mxu::stop() {
  std::erase_if(upsets_, [](const Upset& upset) { return upset.sequence != 0; });
  Engine::stop();
}

uint64_t Mxu::earliest_start(const QueuedCommand& queued) const {
  const auto* plan = std::get_if<MatmulPlan>(&queued.command->plan);
  const auto result = [](const MatmulPlan& of, const QueuedCommand& command) {
    return of.out.extent.at(of.out.address.offset + command.addend[0]);
  };
  uint64_t start = 0;
  for (size_t i = 0; plan != nullptr && plan->job.accumulate && i < flight_count(); ++i) {
    const Flight& before = flight(i);
    if (const auto* other = std::get_if<MatmulPlan>(&before.queued.command->plan)) {
      start =
          std::max(start, spec::accumulate_start(result(*plan, queued), plan->timing.load,
                                                 result(*other, before.queued), before.done_at));
    }
  }
  return start;
}

bool Mxu::start_command(Flight& flight) {
  const auto& plan = std::get<MatmulPlan>(flight.queued.command->plan);
  const std::array<const Operand*, 3> operands = {&plan.out, &plan.lhs, &plan.rhs};
  std::array<uint64_t, 3> base{};
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operand_in(*operands[i], flight.queued.addend[i], vmem_bytes_, &base[i])) {
      fault_port->raise(range_fault_at(flight, TPU_FAULT_VMEM_RANGE, i, *operands[i], vmem_bytes_),
                        "matmul operand outside of VMEM");
      return false;
    }
  }
  const auto at = [&base](size_t i) { return static_cast<int64_t>(base[i]); };
  if (matmul_overlaps(plan, at(0), at(1), at(2))) {
    FaultInfo info = fault_at(flight, TPU_FAULT_DESCRIPTOR);
    info.detail = spec::fault::kDetailOverlap;
    info.address = operand_first(plan.out, base[0]);
    info.length = operand_length(plan.out);
    fault_port->raise(info, "the result of the matmul overlaps one of its operands");
    return false;
  }
  if (context().wants_access() && !tell_accesses(flight, plan, base)) {
    return false;
  }
  const uint64_t now = now_cycles();
  flight.free_at = now + plan.timing.free_at;
  flight.done_at = now + plan.timing.done_at;
  probe().matmul(plan.flops);
  if (context().no_data) {
    return true;
  }
  Work& work = works_.next();
  MxuJob job = plan.job;
  std::array<bool, 2> held{};
  find_operands(work, plan, base, job, held);
  job.start_cycle = now;
  job.op_id = flight.queued.command->op_id;
  MxuEngine& engine = engine_for_step();
  const bool looked_at = probe().wants(ProbeEvent::kNonFinite);
  std::vector<MxuUpset> upsets =
      upsets_.empty() ? std::vector<MxuUpset>() : take_upsets(flight.queued);
  const bool whole = looked_at || !upsets.empty();
  const MxuCut cut = engine.splittable() && !whole ? mxu_cut(job) : MxuCut{};
  JobPool& pool = context().pool;
  const auto most = static_cast<uint64_t>(cut.most);
  const auto terms = static_cast<uint64_t>(job.terms());
  // Engines that count tiles have a pace of their own.
  if (engine.splittable()) {
    pool.cut(work, JobKind::kMatmul, terms, most);
  } else {
    pool.cut(work, 1);
  }
  work.prepare(engine, job, cut, held);
  work.joined = whole || !engine.splittable();  // what it finds
  if (looked_at) {
    work.look_at(vmem_, plan.bytes[0].at(at(0)));
  }
  if (!upsets.empty()) {
    work.upset(std::move(upsets));
  }
  if (engine.splittable()) {
    work.touches.launch(pool, work);
  } else {
    work.touches.launch(pool, strand_, work);
  }
  works_.started(flight.index);
  return true;
}

// Where the host has them; operands may still lie in HBM.
void Mxu::find_operands(Work& work, const MatmulPlan& plan, const std::array<uint64_t, 3>& base,
                        MxuJob& job, std::array<bool, 2>& held) {
  const auto bytes = [&](size_t i) { return plan.bytes[i].at(static_cast<int64_t>(base[i])); };
  write_vmem(work, plan.out, base[0], plan.overwrites, bytes(0));
  const ptrdiff_t lhs = read_vmem(work, plan.lhs, base[1], bytes(1));
  const ptrdiff_t rhs = read_vmem(work, plan.rhs, base[2], bytes(2));
  job.out = vmem_ + base[0];
  job.lhs = vmem_ + base[1] + lhs;
  job.rhs = vmem_ + base[2] + rhs;
  held = {lhs != 0, rhs != 0};
}

bool Mxu::tell_accesses(const Flight& flight, const MatmulPlan& plan,
                        const std::array<uint64_t, 3>& base) {
  const uint32_t me = context().core_id;
  constexpr auto kVmem = ProbeMemory::kVmem;
  const std::array<AccessRange, 3> extents = {operand_range(plan.lhs, me, kVmem, base[1], false),
                                              operand_range(plan.rhs, me, kVmem, base[2], false),
                                              operand_range(plan.out, me, kVmem, base[0], true)};
  return tell_access(flight, extents, [&](const RangeVisitor& visit) {
    const auto bytes = [&](size_t i) { return plan.bytes[i].at(static_cast<int64_t>(base[i])); };
    visit_pattern(bytes(1), {.owner = me, .memory = kVmem}, visit);
    visit_pattern(bytes(2), {.owner = me, .memory = kVmem}, visit);
    if (plan.job.accumulate) {
      visit_pattern(bytes(0), {.owner = me, .memory = kVmem}, visit);
    }
    visit_pattern(bytes(0), {.owner = me, .memory = kVmem, .write = true}, visit);
  });
}

void Mxu::settle_data() { works_.settle(); }

void Mxu::finish_command(Flight& flight) {
  if (context().no_data) {
    return;
  }
  const Work* const of = works_.at(flight.index);
  const bool joined = of->joined;
  works_.ended(flight.index);
  if (!joined) {
    return;
  }
  const Work& work = *of;  // is kept until the next command starts
  tell_non_finite(flight, work.scan());
  if (work.mismatch()) {
    probe().assertion([&] {
      return AssertionEvent{.cycle = flight.done_at, .core = context().core_id, .path = name()};
    });
    fault_port->raise(fault_at(flight, TPU_FAULT_RTL_MISMATCH),
                      "the Verilog does not agree with the result of this matmul" +
                          (work.mismatch_text().empty() ? "" : ": " + work.mismatch_text()));
  }
}

}  // namespace tpu::model
