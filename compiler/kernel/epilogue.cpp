// Kernel pass `epilogue`: which loop kernels are epilogues. See epilogue.hpp.
#include "kernel/epilogue.hpp"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

namespace tpu::compiler {

namespace {

constexpr size_t kCommandLoops = 4;

// Reductions along rows alone can be carried from block to block.
bool reduces_rows(const Nest& nest) {
  return nest.loops.size() == 2 && nest.loops[0].reduced && !nest.loops[1].reduced;
}

// The kernels that copy a value to results; looked up only.
using Copies = std::unordered_multimap<const Value*, const Kernel*>;

Copies copies_of(const KernelProgram& program) {
  Copies copies;
  for (const Kernel& k : program.kernels) {
    if (k.kind == KernelClass::kCopyOut) {
      copies.emplace(k.reads[0], &k);
    }
  }
  return copies;
}

// A result that would take the place of an argument which the loop reads: the loop kernel alone
// updates it in place.
bool updates_argument(const Copies& copies, const Kernel& loop) {
  const auto reads_place_of = [&](const Kernel& copy) {
    return std::ranges::any_of(loop.reads, [&](const Value* v) {
      const bool taken =
          !copy.move().results.empty() && v->def != nullptr && v->def->kind == Kind::kDynamicSlice;
      return taken ? v->type.count() == copy.reads[0]->type.count()
                   : v->def == nullptr && v->type == copy.reads[0]->type;
    });
  };
  return std::ranges::any_of(loop.writes, [&](const Value* v) {
    const auto [first, last] = copies.equal_range(v);
    return std::any_of(first, last, [&](const auto& copy) { return reads_place_of(*copy.second); });
  });
}

// Those along whole columns end inside of a block.
bool reduces_columns(const Nest& nest) {
  return nest.loops.size() > 1 && nest.loops.back().reduced &&
         std::none_of(nest.loops.begin(), nest.loops.end() - 1,
                      [](const Loop& l) { return l.reduced; });
}

bool fits(const Copies& copies, const Kernel& dot, const Kernel& loop) {
  const Nest& nest = loop.loop().nest;
  if (loop.kind != KernelClass::kLoop || nest.loops.size() > kCommandLoops ||
      nest.elements() != dot.out->type.count() || nest.elements() == 0 ||
      updates_argument(copies, loop)) {
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

bool is_among(const std::vector<const Value*>& values, const Value* v) {
  return std::find(values.begin(), values.end(), v) != values.end();
}

void add_made(const Kernel& loop, std::vector<const Value*>& made) {
  made.insert(made.end(), loop.writes.begin(), loop.writes.end());
}

// What the blocks of a contraction have in VMEM.
std::vector<const Value*> made_on_blocks(const Kernel& dot) {
  std::vector<const Value*> made{dot.out};
  for (const auto& loop : dot.contract().after) {
    add_made(*loop, made);
  }
  return made;
}

// Columns of the sums along rows; 1: there are none, 0: others than such sums.
int64_t summed_columns(const Kernel& dot) {
  int64_t columns = 1;
  for (const auto& k : dot.contract().after) {
    const Nest& nest = k->loop().nest;
    if (k->loop().first > 0 || (nest.has_reduce && !reduces_columns(nest))) {
      return 0;
    }
    columns = nest.has_reduce ? nest.loops.back().n : columns;
  }
  return columns;
}

// The view of one number for each row of the innermost loop.
View of_rows(const Nest& nest) {
  View view = nest.identity();
  const int64_t columns = nest.loops.back().n;
  for (int64_t& s : view.stride) {
    s /= columns;
  }
  view.stride.back() = 0;
  return view;
}

// True if `loop` can work on the blocks of `dot` behind kernels that make `made`: on their
// elements, or on the numbers that sums along rows have made. `columns`: of these sums.
bool follows(const Copies& copies, const Kernel& dot, const Kernel& loop,
             const std::vector<const Value*>& made, int64_t columns) {
  const Nest& nest = loop.loop().nest;
  const int64_t elements = nest.elements(), all = dot.out->type.count();
  const bool rows = columns > 1 && elements * columns == all;
  if (loop.kind != KernelClass::kLoop || loop.loop().first > 0 || nest.loops.empty() ||
      nest.loops.size() > kCommandLoops || elements == 0 || (elements != all && !rows) ||
      updates_argument(copies, loop)) {
    return false;
  }
  if (nest.has_reduce && (rows || dot.contract().dot.batch.empty() || !reduces_columns(nest))) {
    return false;
  }
  return std::ranges::all_of(nest.accesses, [&](const NestAccess& a) {
    const int64_t count = a.value->type.count();
    return !is_among(made, a.value) ||
           (count == elements ? a.view == nest.identity()
                              : count * nest.loops.back().n == elements && a.view == of_rows(nest));
  });
}

// True if a kernel other than these two reads the value.
bool is_read_outside(const KernelProgram& program, const Value* v, const Kernel* a,
                     const Kernel* b = nullptr) {
  bool read = false;
  for_each_kernel(program, [&](const Kernel& k) {
    read = read || (&k != a && &k != b && is_among(k.reads, v));
  });
  return read;
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

using Place = std::list<Kernel>::iterator;

// The first kernel behind `k` that reads any of the values, or the end.
Place first_reader(KernelProgram& program, Place k, const std::vector<const Value*>& values) {
  return std::find_if(std::next(k), program.kernels.end(), [&](const Kernel& other) {
    return std::ranges::any_of(other.reads, [&](const Value* v) { return is_among(values, v); });
  });
}

std::shared_ptr<Kernel> as_epilogue(const Kernel& dot, const Kernel& loop,
                                    const EpilogueOptions& options) {
  auto after = std::make_shared<Kernel>(loop);
  const auto& dims = dot.out->type.dims;
  const bool all = after->loop().nest.elements() == dot.out->type.count();
  if (options.by_columns && all && after->loop().first == 0 && !dims.empty()) {  // not a scalar
    split_flat_loop(after->as<LoopPart>().nest, dims.back());
  }
  return after;
}

// The contraction moves to the loop kernel's place: nobody else waits for it.
void join(Kernel& loop, const Kernel& dot, const EpilogueOptions& options) {
  ContractPart part = dot.contract();
  part.after.push_back(as_epilogue(dot, loop, options));
  loop.kind = KernelClass::kContract;
  loop.part = std::move(part);
  loop.out = dot.out;
  loop.ops.insert(loop.ops.begin(), dot.ops.begin(), dot.ops.end());
}

bool join_first(KernelProgram& program, const Copies& copies, Place dot,
                const EpilogueOptions& options, PassLog* log) {
  const Place loop = first_reader(program, dot, {dot->out});
  if (loop == program.kernels.end() || !fits(copies, *dot, *loop)) {
    if (log != nullptr && loop != program.kernels.end()) {
      log->gave_up(loop->kind == KernelClass::kLoop
                       ? "the loop kernel behind a contraction does not work block by block"
                       : "what reads a contraction first is not a loop kernel");
    }
    return false;
  }
  join(*loop, *dot, options);
  std::erase(loop->reads, dot->out);
  loop->reads.insert(loop->reads.begin(), dot->reads.begin(), dot->reads.end());
  if (std::any_of(std::next(loop), program.kernels.end(),
                  [&](const Kernel& k) { return is_among(k.reads, dot->out); })) {
    loop->writes.push_back(dot->out);
  }
  return true;
}

// The next kernels that work on the blocks, up to the first that need not read a large value again.
std::vector<Place> next_epilogues(KernelProgram& program, const Copies& copies, Place dot,
                                  const EpilogueOptions& options) {
  std::vector<Place> found;
  std::vector<const Value*> made = made_on_blocks(*dot), written = dot->writes;
  int64_t columns = summed_columns(*dot);
  for (Place last = dot; columns > 0;) {
    const Place loop = first_reader(program, last, written);
    if (loop == program.kernels.end() || !follows(copies, *dot, *loop, made, columns)) {
      break;
    }
    found.push_back(loop);
    const auto saved = [&](const Value* v) {
      return is_among(made, v) && v->type.bytes() > options.kept_bytes;
    };
    if (std::ranges::any_of(loop->reads, saved)) {
      return found;
    }
    columns = loop->loop().nest.has_reduce ? loop->loop().nest.loops.back().n : columns;
    add_made(*loop, made);
    add_made(*loop, written);
    last = loop;
  }
  return {};
}

void join_next(KernelProgram& program, const Kernel& dot, Kernel& loop,
               const EpilogueOptions& options) {
  const std::vector<const Value*> made = made_on_blocks(dot);
  join(loop, dot, options);
  std::vector<const Value*> reads = dot.reads;
  for (const Value* v : loop.reads) {
    if (!is_among(made, v) && !is_among(reads, v)) {
      reads.push_back(v);
    }
  }
  loop.reads = std::move(reads);
  for (const Value* v : dot.writes) {
    if (is_read_outside(program, v, &dot, &loop)) {
      loop.writes.push_back(v);
    }
  }
}

bool join_more(KernelProgram& program, const Copies& copies, Place dot,
               const EpilogueOptions& options) {
  const std::vector<Place> loops = next_epilogues(program, copies, dot, options);
  for (size_t i = 0; i < loops.size(); ++i) {
    const Place before = i == 0 ? dot : loops[i - 1];
    join_next(program, *before, *loops[i], options);
    if (i > 0) {
      program.kernels.erase(before);
    }
  }
  return !loops.empty();
}

}  // namespace

void fuse_epilogues(KernelProgram& program, const EpilogueOptions& options, PassLog* log) {
  const Copies copies = copies_of(program);
  for (auto k = program.kernels.begin(); k != program.kernels.end();) {
    const bool joined = k->kind == KernelClass::kContract &&
                        (k->contract().after.empty() ? join_first(program, copies, k, options, log)
                                                     : join_more(program, copies, k, options));
    k = joined ? program.kernels.erase(k) : std::next(k);
  }
  renumber(program);
}

bool split_epilogue(KernelProgram& program, int order) {
  const auto it = std::find_if(program.kernels.begin(), program.kernels.end(),
                               [&](const Kernel& k) { return k.order == order; });
  if (it == program.kernels.end() || it->contract().after.empty()) {
    return false;
  }
  auto& after = it->as<ContractPart>().after;
  const Place loop = program.kernels.insert(std::next(it), std::move(*after.back()));
  after.pop_back();
  it->ops.resize(it->ops.size() - loop->ops.size());
  it->reads = {it->contract().dot.lhs, it->contract().dot.rhs};
  const std::vector<const Value*> made = made_on_blocks(*it);
  for (const auto& k : after) {
    std::ranges::copy_if(k->reads, std::back_inserter(it->reads), [&](const Value* v) {
      return !is_among(made, v) && !is_among(it->reads, v);
    });
  }
  it->writes.clear();
  std::ranges::copy_if(made, std::back_inserter(it->writes), [&](const Value* v) {
    return after.empty() || is_read_outside(program, v, &*it);
  });
  renumber(program);
  return true;
}

}  // namespace tpu::compiler
