// Recomputation: which large values stay out of memory, which do not, and that the bits stay.
#include "kernel/recompute.hpp"

#include "../../unit/compiler/control_builder.hpp"
#include "../run_compiled.hpp"
#include "kernel/kernel_passes.hpp"

namespace tpu::compiler::test {
namespace {

constexpr int64_t kRows = 1400, kCols = 801;  // more than 4 MiB in f32, not in bf16

Type large(Elem e = Elem::kF32) { return {e, {kRows, kCols}}; }

// Values of 4 MiB and more that loop kernels write, as kinds of their ops.
std::string large_writes(const Module& module, const std::vector<std::string>& overrides = {}) {
  const KernelProgram program = make_kernels(module, spec::load_board("v3_8", overrides));
  std::string text;
  for (const Kernel& k : program.kernels) {
    for (const Value* v : k.kind == KernelClass::kLoop ? k.writes : std::vector<const Value*>{}) {
      if (v->type.count() * elem_bytes(v->type.elem) >= int64_t{4} << 20) {
        text += (text.empty() ? "" : " ") + std::string(kind_name(v->def->kind));
      }
    }
  }
  return text;
}

// Column sums of a value, as [kRows, kCols] again.
Value* column_sums(GraphBuilder& b, Value* x) {
  Value* sums = b.reduce(x, b.constant(f32({}), 0), {0}, f32({kCols}), Kind::kAdd);
  return b.op(Kind::kBroadcastInDim, {sums}, large(), DimsAttrs{{1}});
}

// Row `row` of `table`, f32[n, kCols], as each row of `type`.
Value* broadcast_row(GraphBuilder& b, Value* table, int64_t row, const Type& type) {
  Value* part =
      b.op(Kind::kSlice, {table}, f32({1, kCols}), SliceAttrs{{row, 0}, {row + 1, kCols}, {1, 1}});
  Value* flat = b.op(Kind::kReshape, {part}, f32({kCols}));
  return b.op(Kind::kBroadcastInDim, {flat}, type, DimsAttrs{{1}});
}

TEST(Recompute, KeepsTheF32CopyOfABf16InputOutOfMemory) {
  GraphBuilder b;
  Value* x = b.arg(large(Elem::kBf16));
  Value* wide = b.op(Kind::kConvert, {x}, large());
  Value* centred = b.op(Kind::kSubtract, {wide, column_sums(b, wide)}, large());
  Value* square = b.op(Kind::kMultiply, {centred, centred}, large());
  Value* scaled = b.op(Kind::kMultiply, {centred, column_sums(b, square)}, large());
  Value* y = b.op(Kind::kConvert, {scaled}, large(Elem::kBf16));
  Module& m = b.done({y});
  EXPECT_EQ(large_writes(m), "");
  // Where HBM is so fast that vector time shows, less is computed twice.
  EXPECT_EQ(large_writes(m, {"hbm.gbps_per_chip=9000"}), "subtract");
  RunOptions o;
  o.tolerance = 0;
  o.small_integers = true;
  check_graph(m, o);
}

// The kernel of `sum` computes `wide` again for `product`. Then it writes `sum` in place of what is
// made of it, and has no use for `wide` any more.
TEST(Recompute, WhatIsNoLongerWrittenTakesWhatWasRecomputedForItAlong) {
  GraphBuilder b;
  Value* x = b.arg(large(Elem::kBf16));
  Value* wide = b.op(Kind::kConvert, {x}, large());
  Value* centred = b.op(Kind::kSubtract, {wide, column_sums(b, wide)}, large());
  Value* sum = b.op(Kind::kAdd, {b.arg(large()), b.arg(large())}, large());
  Value* product = b.op(Kind::kMultiply, {sum, centred}, large());
  Value* scaled = b.op(Kind::kMultiply, {sum, b.constant(large(), 3)}, large());
  Value* sums = column_sums(b, sum);
  Value* one = b.op(Kind::kSubtract, {product, sums}, large());
  Value* two = b.op(Kind::kMultiply, {scaled, sums}, large());
  Module& m = b.done({b.op(Kind::kConvert, {one}, large(Elem::kBf16)),
                      b.op(Kind::kConvert, {two}, large(Elem::kBf16))});
  EXPECT_EQ(large_writes(m), "add");
  RunOptions o;
  o.small_integers = true;
  check_graph(m, o);
}

TEST(Recompute, KeepsWhatItsSourcesWouldCostMoreThan) {
  GraphBuilder b;
  Value* x = b.arg(f32({kRows, kCols}));
  Value* y = b.arg(f32({kRows, kCols}));
  Value* z = b.arg(f32({kRows, kCols}));
  // Three reads in place of a write and a read; the sums keep the kernels apart.
  Value* xy = b.op(Kind::kMultiply, {x, y}, large());
  Value* xyz = b.op(Kind::kAdd, {xy, z}, large());
  Value* out = b.op(Kind::kSubtract, {xyz, column_sums(b, xyz)}, large());
  Module& m = b.done({out});
  EXPECT_EQ(large_writes(m), "add subtract");
  RunOptions o;
  o.small_integers = true;  // sums are exact in any order
  check_graph(m, o);
}

TEST(Recompute, NeverRepeatsFunctionsOrMatmuls) {
  GraphBuilder b;
  Value* x = b.arg(large(Elem::kBf16));
  Value* e = b.op(Kind::kLogistic, {b.op(Kind::kConvert, {x}, large())}, large());
  Value* out = b.op(Kind::kMultiply, {e, column_sums(b, e)}, large());
  Module& m = b.done({out});
  EXPECT_EQ(large_writes(m), "logistic multiply");
  check_graph(m);
}

// As in a loss over a large vocabulary: to read the logits in bf16 is half of what it is to read
// their exponentials.
TEST(Recompute, RepeatsExponentialsOfNarrowerValuesAlone) {
  for (const Elem narrow : {Elem::kBf16, Elem::kF32}) {
    GraphBuilder b;
    Value* x = b.arg(large(narrow));
    Value* wide = narrow == Elem::kF32 ? x : b.op(Kind::kConvert, {x}, large());
    Value* e = b.op(Kind::kExp, {wide}, large());
    Value* out = b.op(Kind::kMultiply, {e, column_sums(b, e)}, large());
    Module& m = b.done({b.op(Kind::kConvert, {out}, large(Elem::kBf16))});
    EXPECT_EQ(large_writes(m), narrow == Elem::kBf16 ? "" : "exponential");
    check_graph(m);
  }
}

TEST(Recompute, AValueThatAMatmulReadsStaysAndOthersRecomputeIt) {
  GraphBuilder b;
  Value* x = b.arg(large(Elem::kBf16));
  Value* w = b.arg(f32({kCols, 3}));
  Value* wide = b.op(Kind::kConvert, {x}, large());
  Value* shifted = b.op(Kind::kAdd, {wide, b.constant(large(), 1)}, large());
  DotAttrs a;
  a.lhs_contract = {1};
  a.rhs_contract = {0};
  Value* product = b.op(Kind::kDotGeneral, {shifted, w}, f32({kRows, 3}), a);
  Value* out = b.op(Kind::kSubtract, {shifted, column_sums(b, shifted)}, large());
  Value* half = b.op(Kind::kConvert, {out}, large(Elem::kBf16));
  Module& m = b.done({product, half});
  EXPECT_EQ(large_writes(m), "add");
  const KernelProgram program = make_kernels(m, spec::load_board("v3_8"));
  int readers = 0;
  for (const Kernel& k : program.kernels) {
    readers += std::count(k.reads.begin(), k.reads.end(), shifted) > 0 ? 1 : 0;
  }
  EXPECT_EQ(readers, 1) << "the matmul alone";
  RunOptions o;
  o.small_integers = true;
  check_graph(m, o);
}

TEST(Recompute, DonatedArgumentsGetNoNewReaders) {
  for (const bool donated : {false, true}) {
    GraphBuilder b;
    Value* x = b.arg(large(Elem::kBf16));
    Value* wide = b.op(Kind::kConvert, {x}, large());
    Value* centred = b.op(Kind::kSubtract, {wide, column_sums(b, wide)}, large());
    Value* next = b.op(Kind::kConvert, {centred}, large(Elem::kBf16));
    Module& m = b.done({next});
    if (donated) {
      m.main->args[0].alias_result = 0;
    }
    EXPECT_EQ(large_writes(m), donated ? "convert" : "");
    RunOptions o;
    o.tolerance = 0;
    o.small_integers = true;
    check_graph(m, o);
  }
}

// A kernel in front of the one that makes the new value may read the old one.
TEST(Recompute, DonatedArgumentsAreReadUntilTheirResultIsMade) {
  GraphBuilder b;
  Value* x = b.arg(large(Elem::kBf16));
  Value* shift = b.arg(f32({kCols}));
  Value* row = b.op(Kind::kBroadcastInDim, {shift}, large(), DimsAttrs{{1}});
  Value* y = b.op(Kind::kAdd, {b.op(Kind::kConvert, {x}, large()), row}, large());
  Value* out = b.op(Kind::kSubtract, {y, column_sums(b, y)}, large());
  Value* sums = b.reduce(out, b.constant(f32({}), 0), {0}, f32({kCols}), Kind::kAdd);
  Value* next = b.op(Kind::kSubtract, {shift, sums}, f32({kCols}));
  Module& m = b.done({next, b.op(Kind::kConvert, {out}, large(Elem::kBf16))});
  m.main->args[1].alias_result = 0;
  EXPECT_EQ(large_writes(m), "");
  RunOptions o;
  o.tolerance = 0;
  o.small_integers = true;
  o.low = -1;
  o.high = 1;
  check_graph(m, o);
}

// A gradient that two layers read scaled and a third one widened: it is written, not its copies.
TEST(Recompute, WritesTheSourceOfSeveralValuesInTheirPlace) {
  constexpr int64_t kTall = 2 * kRows;  // more than 4 MiB in bf16 too
  const Type half{Elem::kBf16, {kTall, kCols}}, wider = f32({kTall, kCols});
  GraphBuilder b;
  Value* x = b.arg(half);
  Value* mask = b.arg(half);
  Value* scale = b.arg(f32({2, kCols}));
  Value* zero = b.constant(half, 0);
  Value* is_on = b.op(Kind::kCompare, {mask, zero}, {Elem::kI1, {kTall, kCols}},
                      CompareAttrs{CompareDirection::kGt, CompareType::kFloat});
  Value* e = b.op(Kind::kExp, {b.op(Kind::kSelect, {is_on, x, zero}, half)}, half);
  Value* wide = b.op(Kind::kConvert, {e}, wider);
  Value* total = b.reduce(wide, b.constant(f32({}), 0), {0}, f32({kCols}), Kind::kAdd);
  Value* sums = b.op(Kind::kBroadcastInDim, {total}, wider, DimsAttrs{{1}});
  std::vector<Value*> results;
  for (int64_t i = 0; i < 2; ++i) {
    Value* each = broadcast_row(b, scale, i, wider);
    Value* scaled = b.op(Kind::kConvert, {b.op(Kind::kMultiply, {wide, each}, wider)}, half);
    Value* back = b.op(Kind::kConvert, {scaled}, wider);
    Value* centred = b.op(Kind::kSubtract, {back, sums}, wider);
    results.push_back(b.op(Kind::kConvert, {centred}, half));
  }
  Module& m = b.done(results);
  EXPECT_EQ(large_writes(m), "exponential convert convert");
  RunOptions o;
  o.tolerance = 0.05;  // bf16
  check_graph(m, o);
}

// A kernel that reads three narrow values reads what they are made of, which has fewer bytes.
TEST(Recompute, WritesAWideSourceInPlaceOfManyNarrowValues) {
  constexpr int64_t kTall = 2 * kRows;
  const Type half{Elem::kBf16, {kTall, kCols}}, wider = f32({kTall, kCols});
  GraphBuilder b;
  Value* source = b.op(Kind::kAdd, {b.arg(wider), b.arg(wider)}, wider);
  Value* scale = b.arg(f32({3, kCols}));
  Value* total = b.reduce(source, b.constant(f32({}), 0), {0}, f32({kCols}), Kind::kAdd);
  Value* sums = b.op(Kind::kBroadcastInDim, {total}, wider, DimsAttrs{{1}});
  std::vector<Value*> results;
  for (int64_t i = 0; i < 3; ++i) {
    Value* each = broadcast_row(b, scale, i, wider);
    Value* scaled = b.op(Kind::kConvert, {b.op(Kind::kMultiply, {source, each}, wider)}, half);
    Value* back = b.op(Kind::kConvert, {scaled}, wider);
    results.push_back(b.op(Kind::kConvert, {b.op(Kind::kSubtract, {back, sums}, wider)}, half));
  }
  EXPECT_EQ(large_writes(b.done(results)), "add convert convert convert");
}

// The loop gets a value to change in place that is read behind it only once y is recomputed there.
TEST(Recompute, ReadsBehindALoopWhatTheLoopStartsFrom) {
  for (const char* vmem : {"core.vmem_kib=16384", "core.vmem_kib=256"}) {
    SCOPED_TRACE(vmem);
    GraphBuilder b;
    Value* x = b.arg(large());
    Value* e = b.op(Kind::kExp, {x}, large());
    Value* y = b.op(Kind::kAdd, {e, b.constant(large(), 1)}, large());
    RegionBuilder r(b.region());
    const Values changed = r.times(2, {e}, [](RegionBuilder& in, const Values& a) {
      return Values{in.mul(a[1], in.number(large(), 0.5))};
    });
    Value* behind = b.reduce(changed[0], b.constant(f32({}), 0), {0}, f32({kCols}), Kind::kAdd);
    Value* wide = b.op(Kind::kBroadcastInDim, {behind}, large(), DimsAttrs{{1}});
    Value* out = b.op(Kind::kSubtract, {y, wide}, large());
    Module& m = b.done({out, changed[0]});
    EXPECT_EQ(large_writes(m), "exponential subtract");
    RunOptions o;
    o.overrides = {vmem};
    check_graph(m, o);
  }
}

// Regions keep what they read: a value of theirs stays in memory, and others recompute it.
TEST(Recompute, AValueThatALoopReadsStays) {
  GraphBuilder b;
  Value* x = b.arg(large(Elem::kBf16));
  Value* wide = b.op(Kind::kConvert, {x}, large());
  Value* z = b.arg(large());
  RegionBuilder r(b.region());
  const Values sum = r.times(
      2, {z}, [&](RegionBuilder& in, const Values& a) { return Values{in.add(a[1], wide)}; });
  Value* out = b.op(Kind::kSubtract, {wide, column_sums(b, sum[0])}, large());
  Value* half = b.op(Kind::kConvert, {out}, large(Elem::kBf16));
  Module& m = b.done({half});
  EXPECT_EQ(large_writes(m), "convert");
  RunOptions o;
  o.small_integers = true;
  check_graph(m, o);
}

TEST(Recompute, SplitKernelsRepeatTheirRecomputedOps) {
  GraphBuilder b;
  Value* x = b.arg(large(Elem::kBf16));
  Value* wide = b.op(Kind::kConvert, {x}, large());
  Value* sums = column_sums(b, wide);
  Value* a = b.op(Kind::kSubtract, {wide, sums}, large());
  Value* c = b.op(Kind::kMultiply, {a, wide}, large());
  Value* d = b.op(Kind::kAdd, {c, wide}, large());
  Value* y = b.op(Kind::kConvert, {d}, large(Elem::kBf16));
  Module& m = b.done({y});
  KernelProgram program = make_kernels(m, spec::load_board("v3_8"));
  const auto k = std::find_if(program.kernels.begin(), program.kernels.end(),
                              [](const Kernel& each) { return !each.loop().recomputed.empty(); });
  ASSERT_NE(k, program.kernels.end());
  const int order = k->order;
  ASSERT_TRUE(split_kernel(program, order));
  const Kernel& rest = *std::next(program.kernels.begin(), order + 1);
  EXPECT_TRUE(std::find(rest.ops.begin(), rest.ops.end(), wide->def) != rest.ops.end());
  while (split_kernel(program, order + 1)) {  // ends, although recomputed ops never go away
  }
  for (const Kernel& each : program.kernels) {
    EXPECT_EQ(std::count(each.writes.begin(), each.writes.end(), wide), 0);
  }
}

}  // namespace
}  // namespace tpu::compiler::test
