// The index keeps reads and writes as find_buffers fills them, and knows makers and readers, while
// kernels are cut, merged with what they need, and taken out.
#include "kernel/kernel_index.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "../graph_builder.hpp"
#include "kernel/kernel_passes.hpp"

namespace tpu::compiler::test {
namespace {

using Buffers = std::vector<std::vector<const Value*>>;

Buffers buffers(const KernelProgram& program) {
  Buffers out;
  for (const Kernel& k : program.kernels) {
    out.push_back(k.reads);
    out.push_back(k.writes);
  }
  return out;
}

void expect_right(const KernelIndex& index, KernelProgram& program) {
  const Buffers kept = buffers(program);
  find_buffers(program);
  EXPECT_EQ(kept, buffers(program));
  std::set<const Value*> values;
  for (const Kernel& k : program.kernels) {
    values.insert(k.reads.begin(), k.reads.end());
    values.insert(k.writes.begin(), k.writes.end());
  }
  for (const Value* v : values) {
    ptrdiff_t reads = 0;
    for (const Kernel& k : program.kernels) {
      reads += std::count(k.reads.begin(), k.reads.end(), v);
      EXPECT_EQ(index.made_before(k.order, v), made_before(program, k.order, v));
    }
    EXPECT_EQ(static_cast<ptrdiff_t>(index.reads(v).size()), reads);
  }
}

// Chains of elementwise ops that read each other and a matmul, sums of them, and results.
class KernelIndexTest : public testing::Test {
 protected:
  KernelIndexTest() {
    const Type t = f32({64, 64});
    Value* x = b_.arg(t);
    Value* y = b_.arg(t);
    DotAttrs dot;
    dot.lhs_contract = {1};
    dot.rhs_contract = {0};
    std::vector<Value*> made = {x, b_.op(Kind::kDotGeneral, {x, y}, t, dot)};
    uint32_t random = 1;
    for (int i = 0; i < 60; ++i) {
      random = random * 1664525 + 1013904223;
      made.push_back(b_.op(i % 3 == 0 ? Kind::kMultiply : Kind::kAdd,
                           {made.back(), made[(random >> 8) % made.size()]}, t));
    }
    Value* sums = b_.reduce(made[30], b_.constant(f32({}), 0), {0}, f32({64}), Kind::kAdd);
    program_ = form_kernels(b_.done({made.back(), made[17], sums}), {512 * 1024});
  }

  GraphBuilder b_;
  KernelProgram program_;
};

TEST_F(KernelIndexTest, FollowsKernelsThatAreCut) {
  KernelIndex index(program_);
  int cuts = 0;
  for (auto k = program_.kernels.begin(); k != program_.kernels.end(); ++k) {
    while (k->kind == KernelClass::kLoop && k->ops.size() > 3 && split_loop(index, k)) {
      renumber(program_);
      expect_right(index, program_);
      EXPECT_TRUE(index.is_changed(*k));
      ++cuts;
    }
  }
  EXPECT_GT(cuts, 5);
}

TEST_F(KernelIndexTest, FollowsKernelsThatAreReplacedAndTakenOut) {
  KernelIndex index(program_);
  for (auto k = program_.kernels.begin(); k != program_.kernels.end(); ++k) {
    if (k->kind == KernelClass::kLoop && k->ops.size() > 3) {
      split_loop(index, k);
    }
  }
  renumber(program_);
  for (Kernel& k : program_.kernels) {
    index.settle(k);
  }
  // A kernel that reads nothing: what it alone has read needs no buffer any more.
  const auto last = std::find_if(program_.kernels.rbegin(), program_.kernels.rend(),
                                 [](const Kernel& k) { return k.kind == KernelClass::kLoop; });
  const std::vector<const Value*> read = last->reads;
  Kernel empty = *last;
  empty.as<LoopPart>().nest.accesses.clear();
  index.replace(*last, std::move(empty));
  expect_right(index, program_);
  const auto is_written = [&](const Value* v) {
    return std::any_of(program_.kernels.begin(), program_.kernels.end(), [&](const Kernel& k) {
      return std::find(k.writes.begin(), k.writes.end(), v) != k.writes.end();
    });
  };
  bool gone = false;
  for (const Value* v : read) {
    if (v->def != nullptr && index.reads(v).empty()) {
      gone = true;
      EXPECT_FALSE(is_written(v));
    }
  }
  EXPECT_TRUE(gone);
  EXPECT_TRUE(std::any_of(program_.kernels.begin(), program_.kernels.end(),
                          [&](const Kernel& k) { return &k != &*last && index.is_changed(k); }));
  index.erase(std::prev(last.base()));
  expect_right(index, program_);
}

}  // namespace
}  // namespace tpu::compiler::test
