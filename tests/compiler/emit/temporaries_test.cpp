// The table of temporaries in HBM: what shares bytes never lives at the same time, and together
// they are the scratch slot.
#include <gmock/gmock.h>

#include <algorithm>

#include "../../unit/compiler/control_builder.hpp"
#include "../run_compiled.hpp"
#include "asm/assembler.hpp"
#include "asm/disassembler.hpp"

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

}  // namespace
}  // namespace tpu::compiler::test
