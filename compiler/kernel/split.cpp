// Limits of one loop kernel and cutting it in two; which values need buffers.
#include <algorithm>
#include <iterator>
#include <set>

#include "kernel/epilogue.hpp"
#include "kernel/kernel_index.hpp"
#include "kernel/kernels.hpp"
#include "vpu/vpu_gen.hpp"

namespace tpu::compiler {

namespace {

bool writes(const Kernel& k, const Value* v) {
  return std::find(k.writes.begin(), k.writes.end(), v) != k.writes.end();
}

bool makes(const Kernel& k, const Value* v) {
  return k.out == v ||
         (std::find(k.ops.begin(), k.ops.end(), v->def) != k.ops.end() &&
          !k.loop().recomputed.contains(v->def)) ||
         std::ranges::any_of(k.contract().after, [v](const auto& loop) { return makes(*loop, v); });
}

int number(KernelProgram& program, std::list<Kernel>::iterator first, int order) {
  for (auto k = first; k != program.kernels.end(); ++k) {
    k->order = order++;
    for (const auto& region : k->control().regions) {
      if (region) {
        order = number(*region, region->kernels.begin(), order);
      }
    }
    k->end = k->control().regions.empty() ? k->order : order++;
  }
  return order;
}

}  // namespace

Kernel::Kernel(KernelClass k) : kind(k) {
  switch (k) {
    case KernelClass::kLoop:
      break;
    case KernelClass::kContract:
      part = ContractPart{};
      break;
    case KernelClass::kAllReduce:
    case KernelClass::kExchange:
      part = ExchangePart{};
      break;
    case KernelClass::kWhile:
    case KernelClass::kBranch:
    case KernelClass::kYield:
      part = ControlPart{};
      break;
    case KernelClass::kHost:
      part = HostPart{};
      break;
    default:
      part = MovePart{};
  }
}

void start_at(Kernel& kernel, int64_t first) {
  auto& loop = kernel.as<LoopPart>();
  loop.first = first;
  loop.nest.loops.at(0).n -= first;
  for (NestAccess& a : loop.nest.accesses) {
    a.view.offset += a.view.stride[0] * first;
  }
}

bool made_before(const KernelProgram& program, int order, const Value* v) {
  return std::any_of(program.kernels.begin(), program.kernels.end(),
                     [&](const Kernel& k) { return k.order < order && makes(k, v); });
}

void renumber(KernelProgram& program) { renumber(program, program.kernels.begin()); }

void renumber(KernelProgram& program, std::list<Kernel>::iterator first) {
  number(program, first, first == program.kernels.begin() ? 0 : std::prev(first)->end + 1);
}

void find_buffers(KernelProgram& program) {
  std::set<const Value*> read;
  for (Kernel& k : program.kernels) {
    if (k.kind == KernelClass::kLoop) {
      k.reads.clear();
      k.writes.clear();
      for (const NestAccess& a : k.loop().nest.accesses) {
        k.reads.push_back(a.value);
      }
    }
    read.insert(k.reads.begin(), k.reads.end());
  }
  for (Kernel& k : program.kernels) {
    if (k.kind == KernelClass::kLoop) {
      for (const Op* op : k.ops) {
        if (read.contains(op->result()) && !k.loop().recomputed.contains(op)) {
          k.writes.push_back(op->result());
        }
      }
    }
  }
}

bool has_few_accesses(const Nest& nest, size_t more) {
  std::set<std::pair<const Value*, Dims>> streams;
  for (const NestAccess& a : nest.accesses) {
    streams.emplace(a.value, a.view.stride);
  }
  const auto sums = std::count_if(nest.nodes.begin(), nest.nodes.end(),
                                  [](const Node& n) { return n.op->kind == Kind::kReduce; });
  const size_t loads = nest.accesses.size() + more;
  return streams.size() + more <= kMaxLoopAccesses && loads <= kMaxLoopTaps &&
         loads + 2 * static_cast<size_t>(sums) <= spec::kVpuAccesses;
}

bool fits_command(const Kernel& k) {
  if (k.kind != KernelClass::kLoop) {
    return true;
  }
  VpuGenOptions o;
  for (size_t n = 0; n < k.loop().nest.nodes.size(); ++n) {
    if (writes(k, k.loop().nest.nodes[n].op->result())) {
      o.stores.push_back(static_cast<int>(n));
    }
  }
  const int loops = static_cast<int>(k.loop().nest.loops.size());
  o.flat = loops <= 1;
  o.col_loop = loops - 1;
  o.row_loop = o.flat ? -1 : loops - 2;
  try {
    for (const bool last : {false, true}) {
      if (!last && !k.loop().nest.has_reduce) {
        continue;  // the same program: nothing is carried
      }
      o.last = last;
      o.first = !last;  // with the accumulators' carry
      if (generate_vpu(k.loop().nest, o).roles.size() > static_cast<size_t>(spec::kVpuAccesses)) {
        return false;
      }
    }
    return true;
  } catch (const OutOfRegisters&) {
    return false;
  }
}

bool split_loop(KernelIndex& index, KernelIndex::Place it) {
  const auto own = [&](const Op* op) { return !it->loop().recomputed.contains(op); };
  const auto owned = std::count_if(it->ops.begin(), it->ops.end(), own);
  if (owned < 2) {
    return false;
  }
  // A copy that is made later than here (it came after these ops were placed) is looked through.
  NestContext context;
  std::vector<const Op*> here;
  context.is_copied = [&](const Value* v) {
    return index.program().copied.contains(v) &&
           (index.made_before(it->order, v) ||
            std::find(here.begin(), here.end(), v->def) != here.end());
  };
  ptrdiff_t half = 0;  // the first half has half of the ops that are not recomputed
  for (ptrdiff_t before = 0; before < owned / 2; ++half) {
    before += own(it->ops[static_cast<size_t>(half)]) ? 1 : 0;
  }
  Kernel rest(KernelClass::kLoop);
  rest.as<LoopPart>().domain = it->loop().domain;
  // What is recomputed is not written: both halves get it.
  std::copy_if(it->ops.begin(), it->ops.begin() + half, std::back_inserter(rest.ops),
               [&](const Op* op) { return !own(op); });
  rest.ops.insert(rest.ops.end(), it->ops.begin() + half, it->ops.end());
  rest.as<LoopPart>().recomputed = it->loop().recomputed;
  const std::vector<const Op*> first(it->ops.begin(), it->ops.begin() + half);
  try {
    auto a = build_nest(first, it->loop().domain, context);
    here = first;
    auto b = build_nest(rest.ops, it->loop().domain, context);
    if (!a || !b || (it->loop().first > 0 && (a->loops.size() != 1 || b->loops.size() != 1))) {
      return false;
    }
    Kernel front = *it;
    front.ops = first;
    front.as<LoopPart>().nest = std::move(*a);
    rest.as<LoopPart>().nest = std::move(*b);
    if (it->loop().first > 0) {
      start_at(rest, it->loop().first);
      start_at(front, it->loop().first);
    }
    index.replace(*it, std::move(front));
  } catch (const NeedsCopy&) {
    return false;
  }
  index.insert(std::next(it), std::move(rest));
  return true;
}

namespace {

bool split(KernelProgram& program, int order) {
  const auto it = std::find_if(program.kernels.begin(), program.kernels.end(),
                               [&](const Kernel& k) { return order <= k.end; });
  if (it == program.kernels.end()) {
    return false;
  }
  for (const auto& region : it->control().regions) {
    if (region && split(*region, order)) {
      return true;
    }
  }
  if (it->order == order && split_epilogue(program, order)) {
    return true;
  }
  if (it->order != order || it->kind != KernelClass::kLoop) {
    return false;
  }
  KernelIndex index(program);
  return split_loop(index, it);
}

}  // namespace

bool split_kernel(KernelProgram& program, int order) {
  const bool done = split(program, order);
  renumber(program);
  return done;
}

}  // namespace tpu::compiler
