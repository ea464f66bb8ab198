// Programs of thousands of donated arrays on the simulated board: as many slots as arguments, up to
// all that a launch has. Every array is another one, so that a slot that is mixed up shows.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "board/board_loader.hpp"
#include "entry/compile.hpp"
#include "tests/unit/compiler/graph_builder.hpp"
#include "tpu/spec/rings.h"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using compiler::Kind;
using compiler::Value;
using compiler::test::f32;

constexpr int64_t kElements = 16;

// Shapes of several sizes.
Shape dims_of(size_t i) { return {kElements, 1 + static_cast<int64_t>(i % 61)}; }

// arrays[i] = arrays[i] + (sum of x over the cores) + i, each in the memory of its argument; of
// `every` arrays the others stay as they are.
exe::ExecutableT updates(size_t arrays, size_t every, int64_t cores) {
  compiler::test::GraphBuilder b(cores);
  compiler::Module& module = b.module();
  std::vector<Value*> of;
  for (size_t i = 0; i < arrays; ++i) {
    of.push_back(b.arg(f32(dims_of(i))));
    module.main->args.back().alias_result = static_cast<int>(i);
  }
  Value* sum = b.arg(f32({kElements}));
  if (cores > 1) {
    module.mesh.name = "mesh";
    module.mesh.axes = {{"d", cores}};
    module.main->args.back().global.dims = {cores * kElements};
    module.main->args.back().sharding.dim_axes = {{0}};
    compiler::CollectiveAttrs everywhere;
    everywhere.groups.emplace_back();
    for (int64_t core = 0; core < cores; ++core) {
      everywhere.groups[0].push_back(core);
    }
    sum = b.with_body(b.op(Kind::kAllReduce, {sum}, sum->type, everywhere), Kind::kAdd);
  }
  std::vector<Value*> results;
  for (size_t i = 0; i < arrays; ++i) {
    if (i % every != 0) {
      results.push_back(of[i]);
      continue;
    }
    const compiler::Type type = f32(dims_of(i));
    Value* rows = b.op(Kind::kBroadcastInDim, {sum}, type, compiler::DimsAttrs{{0}});
    Value* number = b.constant(type, static_cast<double>(i));
    results.push_back(b.op(Kind::kAdd, {of[i], b.op(Kind::kAdd, {rows, number}, type)}, type));
  }
  return compiler::compile(std::move(b.done(results)), spec::load_board("v3_8")).executable;
}

HostArray filled(const Shape& shape, const std::function<float(size_t)>& element) {
  HostArray array{DType::kF32, shape, {}};
  array.bytes.resize(element_count(shape) * sizeof(float));
  for (size_t i = 0; i < element_count(shape); ++i) {
    const float value = element(i);
    std::memcpy(array.bytes.data() + i * sizeof value, &value, sizeof value);
  }
  return array;
}

void run_updates(size_t arrays, size_t every, int64_t cores) {
  constexpr uint32_t kSteps = 2;
  const exe::ExecutableT exe = updates(arrays, every, cores);
  ASSERT_EQ(exe.slots.size(), arrays + 2) << "the arrays, x, scratch";
  Board board = Board::open();
  const Executable program = board.load(exe::write_executable(exe));
  std::vector<Array> arguments;
  for (size_t i = 0; i < arrays; ++i) {
    arguments.push_back(program.put(
        i, filled(dims_of(i), [i](size_t at) { return static_cast<float>(3 * i + at); })));
  }
  arguments.push_back(program.put(arrays, filled({cores * kElements}, [](size_t at) {
                                    return static_cast<float>(at / kElements + 1);
                                  })));
  RunOptions options;
  options.steps = kSteps;
  const RunResult result = program.run(arguments, options);
  result.done.wait();
  const auto sum = static_cast<float>(cores * (cores + 1) / 2);
  size_t wrong = 0;
  for (size_t i = 0; i < arrays; ++i) {
    const HostArray want = filled(dims_of(i), [&](size_t at) {
      const float more = i % every == 0 ? kSteps * (sum + static_cast<float>(i)) : 0;
      return static_cast<float>(3 * i + at) + more;
    });
    wrong += result.outputs[i].to_host_checked("array").bytes == want.bytes ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0U);
  board.close();
}

TEST(SimSlots, ThousandsOfArraysAreUpdatedOnEightCores) { run_updates(5000, 1, 8); }

TEST(SimSlots, ALaunchMayHaveAsManyAsABankHolds) { run_updates(TPU_MAX_SLOTS - 2, 16, 1); }

}  // namespace
}  // namespace tpu::driver
