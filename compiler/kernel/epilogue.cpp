// Which loop kernels are epilogues; blocks of contractions as boxes of loop nests.
#include "kernel/epilogue.hpp"

#include <algorithm>

namespace tpu::compiler {

namespace {

constexpr size_t kCommandLoops = 4;
constexpr int64_t kSublanes = 8;

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

bool fits(const KernelProgram& program, const Kernel& dot, const Kernel& loop) {
  const Nest& nest = loop.loop().nest;
  if (loop.kind != KernelClass::kLoop || nest.loops.size() > kCommandLoops ||
      nest.elements() != dot.out->type.count() || nest.elements() == 0 ||
      (nest.has_reduce && !reduces_rows(nest)) || !dot.contract().dot.batch.empty() ||
      updates_argument(program, loop)) {
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

}  // namespace

void fuse_epilogues(KernelProgram& program) {
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
      continue;
    }
    const bool more_readers = std::any_of(std::next(loop), kernels.end(), reads);
    // The contraction moves to the loop kernel's place: nobody else waits for it.
    const auto after = std::make_shared<Kernel>(*loop);
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

std::optional<NestBlock> nest_block(const Nest& nest, const Contraction& c, const Block& m,
                                    const Block& n, const Dims& m_at, const Dims& n_at) {
  struct Part {
    int64_t step, count, stride;
  };
  const size_t loops = nest.loops.size();
  const Dims pitch = nest.identity().stride;
  std::vector<std::vector<Part>> parts(loops);
  NestBlock out{Dims(loops, 0), Dims(loops, 1), Dims(loops, 0)};
  const auto add = [&](const Contraction::Dim& d, int64_t start, int64_t count, int64_t stride) {
    if (d.n == 1) {
      return true;
    }
    size_t l = 0;
    while (l < loops && pitch[l] > d.out) {
      ++l;
    }
    if (l == loops || d.out % pitch[l] != 0 || d.out / pitch[l] * (d.n - 1) >= nest.loops[l].n) {
      return false;
    }
    out.start[l] += start * (d.out / pitch[l]);
    if (count > 1) {
      parts[l].push_back({d.out / pitch[l], count, stride});
    }
    return true;
  };
  for (size_t i = 0; i < c.m.size(); ++i) {
    if (!add(c.m[i], m.start[i], m.count[i], m_at[i])) {
      return std::nullopt;
    }
  }
  for (size_t i = 0; i < c.n.size(); ++i) {
    if (!add(c.n[i], n.start[i], n.count[i], n_at[i])) {
      return std::nullopt;
    }
  }
  for (size_t l = 0; l < loops; ++l) {
    std::sort(parts[l].begin(), parts[l].end(),
              [](const Part& a, const Part& b) { return a.step < b.step; });
    for (const Part& p : parts[l]) {
      out.stride[l] = out.count[l] == 1 ? p.stride : out.stride[l];
      if (p.step != out.count[l] || p.stride != out.stride[l] * out.count[l]) {
        return std::nullopt;  // gaps
      }
      out.count[l] *= p.count;
    }
  }
  return out;
}

bool carries_reductions(const Nest& nest, const std::vector<NestBlock>& blocks) {
  if (!nest.has_reduce) {
    return true;
  }
  int64_t next = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const NestBlock& b = blocks[i];
    const bool last = b.start[0] + b.count[0] == nest.loops[0].n;
    if (b.start[0] != next || (!last && b.count[0] % kSublanes != 0) ||
        (b.start[0] > 0 && b.count[0] < kSublanes) ||
        (next > 0 &&
         (b.start[1] != blocks[i - 1].start[1] || b.count[1] != blocks[i - 1].count[1]))) {
      return false;
    }
    next = last ? 0 : b.start[0] + b.count[0];
  }
  return next == 0;
}

}  // namespace tpu::compiler
