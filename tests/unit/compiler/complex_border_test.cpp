// Complex numbers in executables: what the host is told, and what putting pairs together costs.
#include <gtest/gtest.h>

#include "board/board_loader.hpp"
#include "complex_numbers.hpp"
#include "entry/codegen.hpp"
#include "entry/pipeline.hpp"
#include "graph_builder.hpp"
#include "passes/pass_manager.hpp"

namespace tpu::compiler::test {
namespace {

exe::ExecutableT executable(Module& m) {
  m.global = true;
  run_passes(m, compile_passes());
  return generate(m, spec::load_board("v3_8", std::vector<std::string>{}), {});
}

TEST(ComplexBorder, TheHostSeesItsOwnArrays) {
  GraphBuilder b;
  Value* x = b.arg(c64({3, 5}));
  Value* scalar = b.arg(c64({}));
  b.region().append(Kind::kSend, {x}, {}, HostAttrs{7, -1, x->type}, unknown_loc());
  Value* sum = b.op(Kind::kAdd, {x, x}, x->type);
  const exe::ExecutableT e = executable(b.done({sum, scalar, x}));
  for (const auto* tensor : {&e.args[0], &e.results[0], &e.results[2]}) {
    EXPECT_EQ((*tensor)->elem, exe::Elem::c64);
    EXPECT_EQ((*tensor)->global_dims, (std::vector<int64_t>{3, 5}));
    EXPECT_EQ((*tensor)->local_dims, (std::vector<int64_t>{3, 5}));
  }
  EXPECT_EQ(e.args[1]->elem, exe::Elem::c64);
  EXPECT_TRUE(e.results[1]->global_dims.empty());
  EXPECT_EQ(e.slots[0]->bytes, 3U * 5 * 8);
  ASSERT_EQ(e.host_calls.size(), 1U);
  EXPECT_EQ(e.host_calls[0]->elem, exe::Elem::c64);
  EXPECT_EQ(e.host_calls[0]->dims, (std::vector<int64_t>{3, 5}));
}

// The same bytes as an f32 array of twice the length: a granule of HBM for each number would be
// fifty times as much.
TEST(ComplexBorder, PairsAreReadAndWrittenInRuns) {
  constexpr int64_t kCount = 1 << 18;
  const auto cycles = [](const Type& type) {
    GraphBuilder b;
    Value* x = b.arg(type);
    return executable(b.done({b.op(Kind::kAdd, {x, x}, type)})).estimated_cycles;
  };
  EXPECT_LT(cycles(c64({kCount})), 6 * cycles(f32({2 * kCount})));
}

}  // namespace
}  // namespace tpu::compiler::test
