// Kernel pass `epilogue`: which loop kernels are epilogues. See epilogue.hpp.
#include "kernel/epilogue.hpp"

#include <algorithm>

namespace tpu::compiler {

namespace {

constexpr size_t kCommandLoops = 4;

// Reductions along rows alone can be carried from block to block.
bool reduces_rows(const Nest& nest) {
  return nest.loops.size() == 2 && nest.loops[0].reduced && !nest.loops[1].reduced;
}

// A result that would take the place of an argument which the loop reads: the loop kernel alone
// updates it in place.
bool updates_argument(const KernelProgram& program, const Kernel& loop) {
  return std::any_of(program.kernels.begin(), program.kernels.end(), [&](const Kernel& k) {
    return k.kind == KernelClass::kCopyOut &&
           std::find(loop.writes.begin(), loop.writes.end(), k.reads[0]) != loop.writes.end() &&
           std::any_of(loop.reads.begin(), loop.reads.end(), [&](const Value* v) {
             return v->def == nullptr && v->type == k.reads[0]->type;
           });
  });
}

// Those along whole columns end inside of a block.
bool reduces_columns(const Nest& nest) {
  return nest.loops.size() > 1 && nest.loops.back().reduced &&
         std::none_of(nest.loops.begin(), nest.loops.end() - 1,
                      [](const Loop& l) { return l.reduced; });
}

bool fits(const KernelProgram& program, const Kernel& dot, const Kernel& loop) {
  const Nest& nest = loop.loop().nest;
  if (loop.kind != KernelClass::kLoop || nest.loops.size() > kCommandLoops ||
      nest.elements() != dot.out->type.count() || nest.elements() == 0 ||
      updates_argument(program, loop)) {
    return false;
  }
  const bool batches = !dot.contract().dot.batch.empty();
  if (nest.has_reduce && !(batches ? reduces_columns(nest) : reduces_rows(nest))) {
    return false;
  }
  int reads = 0;
  for (const NestAccess& a : nest.accesses) {
    if (a.value == dot.out) {
      ++reads;
      if (a.view != nest.identity()) {
        return false;
      }
    }
  }
  return reads == 1;
}

// One loop over all elements as two, the inner one of `columns` elements.
void split_flat_loop(Nest& nest, int64_t columns) {
  if (nest.loops.size() != 1 || nest.has_reduce || nest.loops[0].n % columns != 0) {
    return;
  }
  const auto split = [columns](View& view) {
    view.stride = {view.stride[0] * columns, view.stride[0]};
  };
  nest.loops = {{nest.loops[0].n / columns, false}, {columns, false}};
  for (NestAccess& a : nest.accesses) {
    split(a.view);
  }
  for (View& index : nest.indexes) {
    split(index);
  }
}

}  // namespace

void fuse_epilogues(KernelProgram& program, bool by_columns, PassLog* log) {
  auto& kernels = program.kernels;
  for (auto dot = kernels.begin(); dot != kernels.end();) {
    const auto current = dot++;
    if (current->kind != KernelClass::kContract || current->contract().after != nullptr) {
      continue;
    }
    const auto reads = [&](const Kernel& k) {
      return std::find(k.reads.begin(), k.reads.end(), current->out) != k.reads.end();
    };
    const auto loop = std::find_if(dot, kernels.end(), reads);
    if (loop == kernels.end() || !fits(program, *current, *loop)) {
      if (log != nullptr && loop != kernels.end()) {
        log->gave_up(loop->kind == KernelClass::kLoop
                         ? "the loop kernel behind a contraction does not work block by block"
                         : "what reads a contraction first is not a loop kernel");
      }
      continue;
    }
    const bool more_readers = std::any_of(std::next(loop), kernels.end(), reads);
    // The contraction moves to the loop kernel's place: nobody else waits for it.
    const auto after = std::make_shared<Kernel>(*loop);
    const auto& dims = current->out->type.dims;
    if (by_columns && after->loop().first == 0 && !dims.empty()) {  // a scalar has no columns
      split_flat_loop(after->as<LoopPart>().nest, dims.back());
    }
    Kernel& joined = *loop;
    joined.kind = KernelClass::kContract;
    joined.part = ContractPart{current->contract().dot, after};
    joined.out = current->out;
    joined.ops.insert(joined.ops.begin(), current->ops.begin(), current->ops.end());
    std::erase(joined.reads, current->out);
    joined.reads.insert(joined.reads.begin(), current->reads.begin(), current->reads.end());
    if (more_readers) {
      joined.writes.push_back(current->out);
    }
    kernels.erase(current);
  }
  renumber(program);
}

bool split_epilogue(KernelProgram& program, int order) {
  const auto it = std::find_if(program.kernels.begin(), program.kernels.end(),
                               [&](const Kernel& k) { return k.order == order; });
  if (it == program.kernels.end() || it->contract().after == nullptr) {
    return false;
  }
  Kernel loop = *it->contract().after;
  it->as<ContractPart>().after.reset();
  it->ops = {it->ops.front()};
  it->reads = {it->contract().dot.lhs, it->contract().dot.rhs};
  it->writes = {it->out};
  program.kernels.insert(std::next(it), std::move(loop));
  renumber(program);
  return true;
}

}  // namespace tpu::compiler
