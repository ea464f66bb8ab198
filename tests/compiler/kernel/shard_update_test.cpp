// Sharded updates against plain ones: equal bits on the untimed machine, state put together from
// its owners. A board with little VMEM makes pieces of 16 KiB, so that small arrays have many.
#include <gtest/gtest.h>

#include "../../unit/compiler/graph_builder.hpp"
#include "../run_compiled.hpp"

namespace tpu::compiler::test {
namespace {

constexpr int64_t kPiece = 4096;  // f32 elements of a piece of this board
const std::vector<std::string> kBoard = {"core.vmem_kib=512"};

// Gradient step with momentum over arrays of the given sizes; each core has other gradients, which
// are summed as `summed`.
struct UpdateGraph {
  explicit UpdateGraph(const std::vector<int64_t>& sizes, Elem state = Elem::kF32,
                       Elem summed = Elem::kF32, int64_t cores = 8)
      : b(cores), summed_(summed) {
    b.module().mesh.name = "mesh";
    b.module().mesh.axes = {{"d", cores}};
    std::vector<Value*> gradients, parameters, moments, results;
    for (const int64_t n : sizes) {
      parameters.push_back(state_arg(f32({n})));
      moments.push_back(state_arg({state, {n}}));
      gradients.push_back(b.arg(f32({n})));
      ArgInfo& info = b.module().main->args.back();
      info.global.dims[0] = cores * n;
      info.sharding.dim_axes = {{0}};
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      update(gradients[i], parameters[i], moments[i], results);
    }
    module = &b.done(results);
  }

  Value* state_arg(const Type& type) {
    Value* v = b.arg(type);
    b.module().main->args.back().alias_result = results_++;
    return v;
  }

  Value* splat(const Type& type, double value) { return b.constant(type, value); }

  void update(Value* g, Value* p, Value* m, std::vector<Value*>& results) {
    const Type type = p->type;
    Value* local = b.op(Kind::kAdd, {g, p}, type);  // a reader of the parameters
    Value* sent =
        summed_ == Elem::kF32 ? local : b.op(Kind::kConvert, {local}, {summed_, type.dims});
    Value* sum =
        b.with_body(b.op(Kind::kAllReduce, {sent}, sent->type, CollectiveAttrs{}), Kind::kAdd);
    sum = sent == local ? sum : b.op(Kind::kConvert, {sum}, type);
    Value* mean = b.op(Kind::kDivide, {sum, splat(type, 8)}, type);
    Value* old = m->type == type ? m : b.op(Kind::kConvert, {m}, type);
    Value* kept = b.op(Kind::kMultiply, {old, splat(type, 0.9)}, type);
    Value* next = b.op(Kind::kAdd, {kept, mean}, type);
    Value* step = b.op(Kind::kMultiply, {next, splat(type, 0.1)}, type);
    results.push_back(b.op(Kind::kSubtract, {p, step}, type));
    results.push_back(m->type == type ? next : b.op(Kind::kConvert, {next}, m->type));
  }

  GraphBuilder b;
  Module* module = nullptr;
  int results_ = 0;
  Elem summed_;
};

exe::ExecutableT compile(const Module& module, UpdateSharding mode,
                         const std::vector<std::string>& overrides = kBoard) {
  CompileOptions options;
  options.update_sharding = mode;
  return generate(module, spec::load_board("v3_8", overrides), options);
}

// Runs both ways and compares; returns the sharded executable.
exe::ExecutableT compare(const Module& module) {
  const spec::BoardParams board = spec::load_board("v3_8", kBoard);
  RunOptions o;
  const auto args = random_arguments(module, o);
  const Outcome off = run_executable(module, compile(module, UpdateSharding::kOff), board, args, 3);
  Outcome on;
  for (const uint32_t seed : {0u, 5u}) {
    on = run_executable(module, compile(module, UpdateSharding::kOn), board, args, seed);
    for (size_t i = 0; i < off.results[0].size(); ++i) {
      EXPECT_EQ(result_of(off, 0, i).data, result_of(on, 0, i).data) << "result " << i;
      for (size_t core = 1; core < 8 && on.executable.results[i]->owned_by.empty(); ++core) {
        EXPECT_EQ(on.results[core][i].data, on.results[0][i].data) << i << " on core " << core;
      }
    }
  }
  return on.executable;
}

TEST(UpdateSharding, GivesTheBitsOfThePlainUpdate) {
  for (const int64_t n : {kPiece, 5 * kPiece, 3 * kPiece + 1, 7 * kPiece + 4095, 40 * kPiece}) {
    SCOPED_TRACE(n);
    UpdateGraph g({n});
    const exe::ExecutableT e = compare(*g.module);
    EXPECT_EQ(e.sharded_update_bytes, static_cast<uint64_t>(n / kPiece * kPiece * 4));
    EXPECT_TRUE(e.results[0]->owned_by.empty());   // parameters are gathered
    EXPECT_FALSE(e.results[1]->owned_by.empty());  // moments stay where they are
    EXPECT_EQ(e.args[1]->owned_by, e.results[1]->owned_by);
  }
}

TEST(UpdateSharding, SeveralShapesAndNarrowState) {
  UpdateGraph several({3 * kPiece + 100, 17, 2 * kPiece, 2 * kPiece, 9000});
  EXPECT_GT(compare(*several.module).sharded_update_bytes, 0u);
  UpdateGraph narrow({5 * kPiece + 3, kPiece}, Elem::kBf16);
  EXPECT_GT(compare(*narrow.module).sharded_update_bytes, 0u);
}

// What travels back has twice the bytes of the sum.
TEST(UpdateSharding, SumsOfBf16UpdateF32) {
  for (const int64_t n : {2 * kPiece, 11 * kPiece + 5, 40 * kPiece}) {
    SCOPED_TRACE(n);
    UpdateGraph g({n}, Elem::kF32, Elem::kBf16);
    const exe::ExecutableT e = compare(*g.module);
    EXPECT_EQ(e.sharded_update_bytes, static_cast<uint64_t>(n / (2 * kPiece) * 2 * kPiece * 2));
    EXPECT_TRUE(e.results[0]->owned_by.empty());
  }
  UpdateGraph both({9 * kPiece, 8 * kPiece}, Elem::kBf16, Elem::kBf16);
  EXPECT_GT(compare(*both.module).sharded_update_bytes, 0u);
}

TEST(UpdateSharding, OwnersCoverEveryElementOnce) {
  UpdateGraph g({3 * kPiece + 1});
  const exe::ExecutableT e = compile(*g.module, UpdateSharding::kOn);
  const exe::TensorT& m = *e.results[1];
  ASSERT_EQ(m.owned_elements.size(), 3u * 8 + 1);
  std::vector<uint64_t> held(8);
  for (size_t r = 0; r < m.owned_by.size(); ++r) {
    held[m.owned_by[r]] += m.owned_elements[r];
  }
  for (size_t core = 0; core < 8; ++core) {
    EXPECT_EQ(held[core], static_cast<uint64_t>(3 * kPiece / 8 + (core == 0 ? 1 : 0))) << core;
  }
}

TEST(UpdateSharding, OffAndSmallArraysStayPlain) {
  UpdateGraph g({5 * kPiece});
  EXPECT_EQ(compile(*g.module, UpdateSharding::kOff).sharded_update_bytes, 0u);
  UpdateGraph small({kPiece - 1});
  EXPECT_EQ(compare(*small.module).sharded_update_bytes, 0u);
}

TEST(UpdateSharding, AutoTakesTheFasterProgram) {
  UpdateGraph g({64 * kPiece});
  const exe::ExecutableT on = compile(*g.module, UpdateSharding::kOn);
  const exe::ExecutableT off = compile(*g.module, UpdateSharding::kOff);
  const exe::ExecutableT best = compile(*g.module, UpdateSharding::kAuto);
  EXPECT_LT(on.estimated_cycles, off.estimated_cycles);
  EXPECT_EQ(best.estimated_cycles, on.estimated_cycles);
}

TEST(UpdateSharding, AutoTakesTheFasterProgramOfAPodToo) {
  const spec::BoardParams pod = spec::load_board("v3_32");
  for (const int64_t n : {int64_t{1} << 20, int64_t{1} << 22}) {
    UpdateGraph g({n}, Elem::kF32, Elem::kF32, 32);
    CompileOptions options;
    std::vector<exe::ExecutableT> made;
    for (const auto mode : {UpdateSharding::kOn, UpdateSharding::kOff, UpdateSharding::kAuto}) {
      options.update_sharding = mode;
      made.push_back(generate(*g.module, pod, options));
    }
    EXPECT_LT(made[0].estimated_cycles, made[1].estimated_cycles) << n;
    EXPECT_EQ(made[2].estimated_cycles, made[0].estimated_cycles) << n;
  }
}

// Sums of bf16 over 256 cores: rings of what travels back, twice as large, are more than VMEM.
TEST(UpdateSharding, ExchangesThatDoNotFitStayPlain) {
  const spec::BoardParams pod = spec::load_board("v3_256", kBoard);
  CompileOptions options;
  options.update_sharding = UpdateSharding::kOn;
  UpdateGraph narrow({80 * kPiece}, Elem::kF32, Elem::kBf16, 256);
  const exe::ExecutableT plain = generate(*narrow.module, pod, options);
  EXPECT_EQ(plain.sharded_update_bytes, 0U);
  ASSERT_EQ(plain.notes.size(), 1U);
  EXPECT_NE(plain.notes[0].find(" bytes of VMEM, and a core has 524288"), std::string::npos)
      << plain.notes[0];
  UpdateGraph wide({80 * kPiece}, Elem::kF32, Elem::kF32, 256);
  EXPECT_GT(generate(*wide.module, pod, options).sharded_update_bytes, 0U);
}

// The norm of all gradients scales them: sums stay whole, and updates follow as one exchange.
TEST(UpdateSharding, UpdatesBehindANormAreCutOverTheCores) {
  for (const Elem summed : {Elem::kF32, Elem::kBf16}) {
    GraphBuilder b(8);
    b.module().mesh.axes = {{"d", 8}};
    std::vector<Value*> state, sums, results;
    Value* norm = nullptr;
    const std::vector<int64_t> sizes = {6 * kPiece, 5 * kPiece + 77, 100, 8 * kPiece, 40 * kPiece};
    for (const int64_t n : sizes) {
      for (int i = 0; i < 2; ++i) {  // parameter, moment
        state.push_back(b.arg(f32({n})));
        b.module().main->args.back().alias_result = static_cast<int>(state.size()) - 1;
      }
    }
    for (const int64_t n : sizes) {
      Value* x = b.arg(f32({n}));
      ArgInfo& info = b.module().main->args.back();
      info.global.dims[0] = 8 * n;
      info.sharding.dim_axes = {{0}};
      x = b.op(Kind::kAdd, {x, state[2 * sums.size()]}, x->type);  // parameters have a reader
      x = summed == Elem::kF32 ? x : b.op(Kind::kConvert, {x}, {summed, {n}});
      Value* sum = b.with_body(b.op(Kind::kAllReduce, {x}, x->type, CollectiveAttrs{}), Kind::kAdd);
      sum = summed == Elem::kF32 ? sum : b.op(Kind::kConvert, {sum}, f32({n}));
      sums.push_back(sum);
      Value* square = b.op(Kind::kMultiply, {sum, sum}, sum->type);
      Value* part = b.reduce(square, b.constant(f32({}), 0), {0}, f32({}), Kind::kAdd);
      norm = norm == nullptr ? part : b.op(Kind::kAdd, {norm, part}, part->type);
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      const Type type = sums[i]->type;
      Value* spread = b.op(Kind::kBroadcastInDim, {norm}, type, DimsAttrs{});
      Value* scaled = b.op(Kind::kDivide, {sums[i], spread}, type);
      Value* next = b.op(Kind::kAdd, {state[2 * i + 1], scaled}, type);
      results.push_back(b.op(Kind::kSubtract, {state[2 * i], next}, type));
      results.push_back(next);
    }
    const exe::ExecutableT e = compare(b.done(results));
    const int64_t pieces = summed == Elem::kF32 ? 59 : 29;
    EXPECT_EQ(e.sharded_update_bytes, static_cast<uint64_t>(pieces * kPiece * 4));
    EXPECT_TRUE(e.results[0]->owned_by.empty());
    EXPECT_FALSE(e.results[1]->owned_by.empty());
    EXPECT_TRUE(e.results[5]->owned_by.empty()) << "small arrays stay whole";
  }
}

// Two arrays that pull each other, behind one norm: the updates of both are one exchange, and each
// reads the state of the other as it was.
TEST(UpdateSharding, UpdatesThatReadEachOthersStateReadTheOldOne) {
  GraphBuilder b(8);
  b.module().mesh.axes = {{"d", 8}};
  const Type type = f32({64 * kPiece});
  std::vector<Value*> state, sums;
  Value* norm = nullptr;
  for (int i = 0; i < 2; ++i) {
    state.push_back(b.arg(type));
    b.module().main->args.back().alias_result = i;
  }
  for (int i = 0; i < 2; ++i) {
    Value* x = b.arg(type);
    ArgInfo& info = b.module().main->args.back();
    info.global.dims[0] *= 8;
    info.sharding.dim_axes = {{0}};
    Value* sum = b.with_body(b.op(Kind::kAllReduce, {x}, type, CollectiveAttrs{}), Kind::kAdd);
    sums.push_back(sum);
    Value* square = b.op(Kind::kMultiply, {sum, sum}, type);
    Value* part = b.reduce(square, b.constant(f32({}), 0), {0}, f32({}), Kind::kAdd);
    norm = norm == nullptr ? part : b.op(Kind::kAdd, {norm, part}, part->type);
  }
  Value* spread = b.op(Kind::kBroadcastInDim, {norm}, type, DimsAttrs{});
  std::vector<Value*> results;
  for (size_t i = 0; i < 2; ++i) {
    Value* apart = b.op(Kind::kSubtract, {state[i], state[1 - i]}, type);
    Value* pull = b.op(Kind::kMultiply, {apart, b.constant(type, 0.25)}, type);
    Value* scaled = b.op(Kind::kDivide, {sums[i], spread}, type);
    results.push_back(
        b.op(Kind::kSubtract, {state[i], b.op(Kind::kAdd, {scaled, pull}, type)}, type));
  }
  const exe::ExecutableT e = compare(b.done(results));
  EXPECT_EQ(e.sharded_update_bytes, static_cast<uint64_t>(2 * 64 * kPiece * 4));
}

// A sum that is a result, too, stays whole; its reader is cut.
TEST(UpdateSharding, SumsThatAreResults) {
  GraphBuilder b(8);
  b.module().mesh.axes = {{"d", 8}};
  const Type type = f32({3 * kPiece + 5});
  Value* p = b.arg(type);
  b.module().main->args[0].alias_result = 0;
  Value* x = b.arg(type);
  Value* sum = b.with_body(b.op(Kind::kAllReduce, {x}, type, CollectiveAttrs{}), Kind::kAdd);
  EXPECT_EQ(compare(b.done({b.op(Kind::kSubtract, {p, sum}, type), sum})).sharded_update_bytes,
            static_cast<uint64_t>(3 * kPiece * 4));
}

// An update that another kernel reads before the next step is made on all cores.
TEST(UpdateSharding, WhatIsReadInTheStepIsMadeOnAllCores) {
  GraphBuilder b(8);
  b.module().mesh.axes = {{"d", 8}};
  const Type type = f32({3 * kPiece});
  Value* p = b.arg(type);
  b.module().main->args[0].alias_result = 0;
  Value* x = b.arg(type);
  Value* sum = b.with_body(b.op(Kind::kAllReduce, {x}, type, CollectiveAttrs{}), Kind::kAdd);
  Value* total = b.reduce(sum, b.constant(f32({}), 0), {0}, f32({}), Kind::kAdd);
  Value* next = b.op(Kind::kSubtract, {p, sum}, type);
  Value* after = b.reduce(next, b.constant(f32({}), 0), {0}, f32({}), Kind::kMaximum);
  const exe::ExecutableT e = compare(b.done({next, total, after}));
  EXPECT_EQ(e.sharded_update_bytes, 0u);
  ASSERT_FALSE(e.notes.empty());
  EXPECT_NE(e.notes[0].find("not sharded"), std::string::npos) << e.notes[0];
}

// However many arrays it keeps from being sharded.
TEST(UpdateSharding, OneReasonIsSaidOnce) {
  GraphBuilder b(8);
  b.module().mesh.axes = {{"d", 8}};
  const Type type = f32({3 * kPiece});
  CollectiveAttrs pairs;
  pairs.groups = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
  std::vector<Value*> results;
  for (int i = 0; i < 3; ++i) {
    Value* p = b.arg(type);
    b.module().main->args.back().alias_result = i;
    Value* x = b.arg(type);
    Value* sum = b.with_body(b.op(Kind::kAllReduce, {x}, type, pairs), Kind::kAdd);
    results.push_back(b.op(Kind::kSubtract, {p, sum}, type));
  }
  const exe::ExecutableT e = compile(b.done(results), UpdateSharding::kOn);
  ASSERT_EQ(e.notes.size(), 1U);
  EXPECT_NE(e.notes[0].find(" and 2 more, "), std::string::npos) << e.notes[0];
  EXPECT_NE(e.notes[0].find(" bytes: the sum is not over all cores"), std::string::npos)
      << e.notes[0];
}

// State of each core's own cannot be updated by another.
TEST(UpdateSharding, StateThatDiffersBetweenCoresIsNotSharded) {
  UpdateGraph g({3 * kPiece});
  for (ArgInfo& a : g.module->main->args) {
    if (a.sharding.is_replicated()) {
      a.global.dims[0] = 8 * 3 * kPiece;
      a.sharding.dim_axes = {{0}};
    }
  }
  for (ResultInfo& r : g.module->main->results) {
    r.global.dims[0] = 8 * 3 * kPiece;
    r.sharding.dim_axes = {{0}};
  }
  EXPECT_EQ(compile(*g.module, UpdateSharding::kOn).sharded_update_bytes, 0u);
}

// A moment that something else reads must be whole at the end of the step.
TEST(UpdateSharding, StateWithAnotherReaderIsGathered) {
  GraphBuilder b(8);
  b.module().mesh.axes = {{"d", 8}};
  const Type type = f32({3 * kPiece});
  Value* m = b.arg(type);
  b.module().main->args[0].alias_result = 0;
  Value* x = b.arg(type);
  Value* old = b.op(Kind::kSlice, {m}, f32({100}), SliceAttrs{{5}, {105}, {1}});
  Value* sum = b.with_body(b.op(Kind::kAllReduce, {x}, type, CollectiveAttrs{}), Kind::kAdd);
  Module& module = b.done({b.op(Kind::kAdd, {m, sum}, type), old});
  const exe::ExecutableT e = compare(module);
  EXPECT_GT(e.sharded_update_bytes, 0u);
  EXPECT_TRUE(e.results[0]->owned_by.empty());
}

}  // namespace
}  // namespace tpu::compiler::test
