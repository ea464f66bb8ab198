// The table of temporaries in HBM: what shares bytes never lives at the same time, and together
// they are the scratch slot.
#include <gmock/gmock.h>

#include <algorithm>

#include "../../unit/compiler/control_builder.hpp"
#include "../../unit/compiler/kept_layers.hpp"
#include "../run_compiled.hpp"
#include "asm/assembler.hpp"
#include "asm/disassembler.hpp"
#include "passes/rematerialise.hpp"

namespace tpu::compiler::test {
namespace {

using ::testing::Each;

// Loops over 256 KiB, each of which begins with the results of the two before it, on a board with
// little VMEM.
exe::ExecutableT with_temporaries() {
  GraphBuilder b;
  Value* x = b.arg(f32({64, 1024}));
  RegionBuilder r(b.region());
  Values made = {x, x};
  for (int i = 0; i < 5; ++i) {
    Value* both = r.add(made[made.size() - 2], made.back());
    made.push_back(r.times(3, {both}, [](RegionBuilder& in, const Values& a) {
      return Values{in.add(a[1], in.mul(a[1], a[1]))};
    })[1]);
  }
  return generate(b.done({made.back()}), spec::load_board("v3_8", {"core.vmem_kib=64"}), {});
}

uint64_t scratch_bytes(const exe::ExecutableT& e) {
  const auto slot =
      std::ranges::find(e.slots, exe::SlotKind::scratch, [](const auto& s) { return s->kind; });
  return slot == e.slots.end() ? 0 : (*slot)->bytes;
}

TEST(Temporaries, ShareBytesOnlyOneAfterTheOther) {
  const exe::ExecutableT e = with_temporaries();
  ASSERT_GT(e.temporaries.size(), 3U);
  uint64_t end = 0;
  bool reused = false;
  for (size_t i = 0; i < e.temporaries.size(); ++i) {
    const exe::TemporaryT& a = *e.temporaries[i];
    end = std::max(end, a.offset + a.bytes);
    for (size_t k = i + 1; k < e.temporaries.size(); ++k) {
      const exe::TemporaryT& b = *e.temporaries[k];
      const bool share = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      EXPECT_FALSE(share && a.from < b.to && b.from < a.to) << i << " and " << k;
      reused = reused || share;
    }
  }
  EXPECT_TRUE(reused);
  EXPECT_EQ(end, scratch_bytes(e));
}

TEST(Temporaries, HaveTypeAndOperation) {
  const exe::ExecutableT e = with_temporaries();
  std::vector<std::string> names;
  for (const auto& t : e.temporaries) {
    names.push_back(e.ops.at(t->op)->name);
    EXPECT_EQ(exe::element_count(t->dims) * exe::elem_bytes(t->elem), t->bytes);
  }
  EXPECT_THAT(names, Each("add"));
}

TEST(Temporaries, AssembleFromTheirDisassembly) {
  const exe::ExecutableT e = with_temporaries();
  const exe::ExecutableT again =
      assemble(disassemble(e), "again.s", spec::load_board("v3_8", {"core.vmem_kib=64"}));
  EXPECT_EQ(exe::write_executable(again), exe::write_executable(e));
}

// What is alive behind the forward pass of kept_layers().
MemoryPeak peak_of(const Module& m, int64_t bytes) {
  MemoryPeak peak{.excess = 2 * bytes};
  for (const auto& op : m.main->body.ops) {
    if (op->kind == Kind::kDotGeneral && op->type().bytes() < bytes) {
      return peak;  // a gradient of the weights
    }
    if (op->kind == Kind::kDotGeneral || op->kind == Kind::kMultiply) {
      peak.alive.push_back(op->result());
    }
  }
  return peak;
}

TEST(Temporaries, OfValuesThatAreComputedAgainAreFewerAndOfTheSameBits) {
  constexpr int64_t kRows = 2048, kWidth = 128, kBytes = kRows * kWidth * 4;
  const spec::BoardParams board = spec::load_board("v3_8", {"core.vmem_kib=512"});
  const auto run = [&](bool again) {
    GraphBuilder b;
    kept_layers(b, 8, kRows, kWidth);
    Module& m = b.module();
    legalize(m);
    m.number_ops();
    if (again) {
      EXPECT_GE(rematerialise(m, peak_of(m, kBytes)), 2 * kBytes);
    }
    verify(m);
    return run_executable(m, generate(m, board, {}), board, random_arguments(m, {}), 0);
  };
  const Outcome plain = run(false), again = run(true);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(plain.results[0][i].data, again.results[0][i].data);
  }
  EXPECT_LE(scratch_bytes(again.executable) + 2 * kBytes, scratch_bytes(plain.executable));
}

}  // namespace
}  // namespace tpu::compiler::test
