// VPU commands: kernels with registers resolved, time, data.
#include "core/engines/vpu.hpp"

#include <algorithm>

#include "kernel/cycles.hpp"
#include "kernel/host_profile.hpp"
#include "tpu/spec/fault_regs.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model {
namespace {

constexpr uint64_t kQuickOperations = 20'000;

}  // namespace

void Vpu::Work::prepare(const VpuKernel& kernel, uint8_t* vmem, VpuSimd simd) {
  kernel_ = &kernel;
  vmem_ = vmem;
  simd_ = simd;
  parts_count_ = 1;
  set_parts(1);
  set_quick(kernel.lane_operations() <= kQuickOperations);
  looks_ = false;
  scan_ = {};
}

int Vpu::Work::split(int parts) {
  split_ = kernel_->split_count();
  parts_count_ = static_cast<int>(
      std::min<uint64_t>(static_cast<uint64_t>(parts), std::max<uint64_t>(split_, 1)));
  return parts_count_;
}

void Vpu::Work::run_part(int part) {
  const auto parts = static_cast<uint64_t>(parts_count_);
  const HostTimer timer(HostWork::kVpu, kernel_->lane_operations() / parts,
                        kernel_->memory_bytes() / parts);
  if (parts_count_ == 1) {
    kernel_->run(vmem_, simd_, shifts);
    if (looks_) {
      kernel_->for_each_pattern(
          [&](const spec::StridePattern& pattern, bool write, spec::Elem type) {
            if (write) {
              scan_.add(vmem_, pattern, type);
            }
          });
    }
    return;
  }
  const auto p = static_cast<uint64_t>(part);
  kernel_->run_range(vmem_, split_ * p / parts, split_ * (p + 1) / parts, simd_, shifts);
}

Vpu::Vpu(sc_core::sc_module_name name, const EngineContext& context, uint8_t* vmem,
         uint64_t vmem_bytes, VpuSimd simd)
    : Engine(name, spec::Queue::kVpu, context),
      vmem_(vmem),
      vmem_bytes_(vmem_bytes),
      simd_(simd),
      works_(context.pool, context.copies, flight_capacity()) {}

FaultInfo Vpu::outside_of_vmem(const VpuPlan& plan, const Flight& flight,
                               const VpuKernel& kernel) const {
  FaultInfo info = fault_at(flight, TPU_FAULT_VMEM_RANGE);
  info.detail = spec::fault::kDetailAddress;
  for (const VpuFootprint& range : kernel.footprints()) {
    if (range.begin < 0 || range.end > static_cast<int64_t>(vmem_bytes_)) {
      const auto access = static_cast<size_t>(range.access);
      info.address = static_cast<uint64_t>(range.begin);
      info.length = static_cast<uint64_t>(range.end - range.begin);
      const auto& address = plan.accesses[access].addr;
      info.detail = address.reg != 0 ? spec::fault::kDetailAddress : 0;
      info.data = address.reg != 0 ? flight.queued.addend[access] : address.offset;
      info.limit = info.data + static_cast<int64_t>(vmem_bytes_) - range.end;
      break;
    }
  }
  return info;
}

// The kernel of the command; null after a fault.
const VpuKernel* Vpu::resolve(const VpuPlan& plan, Flight& flight, Work& work) {
  if (!plan.dynamic) {
    return &*plan.fixed;
  }
  std::array<int64_t, kMaxOperands> bases{};
  for (size_t i = 0; i < plan.accesses.size(); ++i) {
    bases[i] = plan.accesses[i].addr.offset + flight.queued.addend[i];
  }
  work.own.emplace(*plan.program, plan.command, plan.accesses,
                   std::span(bases).first(plan.accesses.size()), flight.queued.scalars);
  const std::string error = work.own->check(vmem_bytes_);
  if (!error.empty()) {
    fault_port->raise(outside_of_vmem(plan, flight, *work.own), error);
    return nullptr;
  }
  return &*work.own;
}

bool Vpu::start_command(Flight& flight) {
  const auto& plan = std::get<VpuPlan>(flight.queued.command->plan);
  Work& work = works_.next();
  const VpuKernel* kernel = resolve(plan, flight, work);
  if (kernel == nullptr) {
    return false;
  }
  if (context().wants_access() && !tell_accesses(flight, *kernel)) {
    return false;
  }
  const uint64_t now = now_cycles();
  flight.free_at = now + plan.cycles.free_at;
  flight.done_at = now + plan.cycles.done_at;
  if (context().no_data) {
    return true;
  }
  find_operands(work, plan, *kernel);
  const bool looked_at = probe().wants(ProbeEvent::kNonFinite);
  JobPool& pool = context().pool;
  const uint64_t operations = kernel->lane_operations();
  // Last, since it looks at all accesses.
  const bool splits =
      !looked_at && pool.worth(JobKind::kVector, operations) > 1 && kernel->can_split();
  pool.cut(work, JobKind::kVector, operations, splits ? kernel->split_count() : 1);
  work.prepare(*kernel, vmem_, simd_);
  if (looked_at) {
    work.look();
    work.joined = true;
  }
  work.touches.launch(pool, work);
  works_.started(flight.index);
  return true;
}

// Loads whose bytes still lie in HBM find them there, unless they may have to see what the kernel
// stores.
void Vpu::find_operands(Work& work, const VpuPlan& plan, const VpuKernel& kernel) {
  DeferredCopies& copies = context().copies;
  work.shifts.clear();
  const std::vector<VpuFootprint> own =
      plan.dynamic ? kernel.footprints() : std::vector<VpuFootprint>();
  const std::span<const VpuFootprint> prints = plan.dynamic ? own : plan.prints;
  const size_t accesses = plan.accesses.size();
  for (const VpuFootprint& print : prints) {
    work.touches.add(
        context().vmem_order,
        {.low = static_cast<uint64_t>(print.begin), .high = static_cast<uint64_t>(print.end)},
        print.write);
  }
  if (copies.empty()) {
    return;
  }
  const bool stores = std::ranges::any_of(prints, [&](const VpuFootprint& print) {
    return print.write &&
           copies.touches(static_cast<uint64_t>(print.begin), static_cast<uint64_t>(print.end));
  });
  if (!stores) {
    shift_loads(work, prints, accesses);
    return;
  }
  if (kernel.loads_before_stores()) {
    shift_loads(work, prints, accesses);
    kernel.for_each_pattern([&](const spec::StridePattern& pattern, bool write, spec::Elem) {
      const spec::ByteExtent bytes = pattern.extent();
      if (write) {
        copies.write(static_cast<uint64_t>(bytes.low), static_cast<uint64_t>(bytes.high),
                     spec::is_one_run(pattern));
      }
    });
    return;
  }
  for (const VpuFootprint& print : prints) {
    if (print.write) {
      copies.settle(static_cast<uint64_t>(print.begin), static_cast<uint64_t>(print.end));
    }
  }
  shift_loads(work, prints, accesses);
}

void Vpu::shift_loads(Work& work, std::span<const VpuFootprint> prints, size_t accesses) {
  DeferredCopies& copies = context().copies;
  std::vector<int64_t>& shifts = work.shifts;
  for (size_t i = 0; i < prints.size(); ++i) {
    const VpuFootprint& load = prints[i];
    uint64_t begin = UINT64_MAX;
    uint64_t end = 0;
    bool first = true;
    bool stores = false;
    for (size_t j = 0; j < prints.size(); ++j) {  // all that goes by this access
      if (prints[j].access == load.access) {
        first = first && (j >= i || prints[j].write);
        stores = stores || prints[j].write;
        begin = std::min(begin, static_cast<uint64_t>(prints[j].begin));
        end = std::max(end, static_cast<uint64_t>(prints[j].end));
      }
    }
    if (!first || load.write || !copies.touches(begin, end)) {
      continue;
    }
    if (stores) {  // an access is in one place for all that goes by it
      copies.settle(begin, end);
      continue;
    }
    const int64_t shift = copies.read(begin, end, work.uses, work.touches);
    if (shift != 0) {
      shifts.resize(accesses);
      shifts[static_cast<size_t>(load.access)] = shift;
    }
  }
}

bool Vpu::tell_accesses(const Flight& flight, const VpuKernel& kernel) {
  const uint32_t me = context().core_id;
  std::vector<AccessRange> extents;
  for (const VpuFootprint& range : kernel.footprints()) {
    extents.push_back({.owner = me,
                       .memory = ProbeMemory::kVmem,
                       .low = static_cast<uint64_t>(range.begin),
                       .bytes = static_cast<uint64_t>(range.end - range.begin),
                       .write = range.write});
  }
  return tell_access(flight, extents, [&](const RangeVisitor& visit) {
    kernel.for_each_pattern([&](const spec::StridePattern& pattern, bool write, spec::Elem) {
      visit_pattern(pattern, {.owner = me, .memory = ProbeMemory::kVmem, .write = write}, visit);
    });
  });
}

void Vpu::settle_data() { works_.settle(); }

void Vpu::finish_command(Flight& flight) {
  if (!context().no_data) {
    const Work* const work = works_.at(flight.index);
    const bool joined = work->joined;
    works_.ended(flight.index);
    if (joined) {
      tell_non_finite(flight, work->scan());
    }
  }
}

}  // namespace tpu::model
