// Op matrix: shapes that do not fit blocks, tiles or VMEM; every op class alone and fused; boards
// with little VMEM, so that rings, spills and carried accumulators happen.
#include "../../unit/compiler/graph_builder.hpp"
#include "../run_compiled.hpp"
#include "board/board_loader.hpp"
#include "emit/emit.hpp"
#include "kernel/kernel_passes.hpp"

namespace tpu::compiler::test {
namespace {

const std::vector<std::string> kSmallVmem = {"core.vmem_kib=64"};

Type bf16(Dims dims) { return {Elem::kBf16, std::move(dims)}; }

Value* dot(GraphBuilder& b, Value* x, Value* y, DotAttrs a, Type out) {
  return b.op(Kind::kDotGeneral, {x, y}, std::move(out), std::move(a));
}

DotAttrs contract(Dims lhs, Dims rhs, Dims lhs_batch = {}, Dims rhs_batch = {}) {
  DotAttrs a;
  a.lhs_contract = std::move(lhs);
  a.rhs_contract = std::move(rhs);
  a.lhs_batch = std::move(lhs_batch);
  a.rhs_batch = std::move(rhs_batch);
  return a;
}

struct DotCase {
  int64_t m, k, n;
};

class Dot : public testing::TestWithParam<DotCase> {};

TEST_P(Dot, EqualsTheLawInEveryLayout) {
  const auto [m, k, n] = GetParam();
  for (const bool lhs_turned : {false, true}) {
    for (const bool rhs_turned : {false, true}) {
      for (const bool small : {false, true}) {
        GraphBuilder b;
        Value* x = b.arg(lhs_turned ? f32({k, m}) : f32({m, k}));
        Value* y = b.arg(rhs_turned ? f32({n, k}) : f32({k, n}));
        Value* z = dot(b, x, y, contract({lhs_turned ? 0 : 1}, {rhs_turned ? 1 : 0}), f32({m, n}));
        RunOptions o;
        o.tolerance = 0;
        if (small) {
          o.overrides = kSmallVmem;
        }
        SCOPED_TRACE(std::string(lhs_turned ? "lhs turned " : "") +
                     (rhs_turned ? "rhs turned " : "") + (small ? "64 KiB" : ""));
        check_graph(b.done({z}), o);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Dot,
                         testing::Values(DotCase{1, 1, 1}, DotCase{25, 784, 10},
                                         DotCase{7, 127, 129}, DotCase{129, 128, 300},
                                         DotCase{300, 1, 7}, DotCase{1, 300, 257},
                                         DotCase{130, 257, 1}, DotCase{64, 256, 512}));

TEST(DotGeneral, BatchesOuterProductsAndManyDims) {
  GraphBuilder b;
  Value* x = b.arg(f32({3, 5, 7}));
  Value* y = b.arg(f32({3, 7, 4}));
  Value* batched = dot(b, x, y, contract({2}, {1}, {0}, {0}), f32({3, 5, 4}));
  Value* u = b.arg(f32({9}));
  Value* v = b.arg(f32({130}));
  Value* outer = dot(b, u, v, contract({}, {}), f32({9, 130}));
  Value* inner = dot(b, v, v, contract({0}, {0}), f32({}));
  Value* two = dot(b, x, y, contract({0, 2}, {0, 1}), f32({5, 4}));
  Value* odd = dot(b, x, y, contract({2}, {1}), f32({3, 5, 3, 4}));
  Value* middle = b.arg(f32({6, 2, 11, 3}));
  Value* w = b.arg(f32({11, 4, 6}));
  Value* mid = dot(b, middle, w, contract({2, 0}, {0, 2}), f32({2, 3, 4}));
  Value* swapped_batch = dot(b, middle, w, contract({2}, {0}, {0}, {2}), f32({6, 2, 3, 4}));
  RunOptions o;
  o.tolerance = 0;
  check_graph(b.done({batched, outer, inner, two, odd, mid, swapped_batch}), o);
}

TEST(DotGeneral, Bf16InAndOut) {
  for (const bool small : {false, true}) {
    GraphBuilder b;
    Value* x = b.arg(bf16({70, 300}));
    Value* y = b.arg(bf16({300, 200}));
    Value* z = dot(b, x, y, contract({1}, {0}), bf16({70, 200}));
    Value* f = dot(b, x, y, contract({1}, {0}), f32({70, 200}));
    RunOptions o;
    o.tolerance = 0;
    if (small) {
      o.overrides = kSmallVmem;
    }
    check_graph(b.done({z, f}), o);
  }
}

// Weights that meet a few rows come in blocks, on either side of the product; layers follow each
// other, so that blocks of the next one are on their way. With VMEM for many, few and one of them.
TEST(DotGeneral, FewRowsStreamTheirWeights) {
  for (const auto type : {&bf16, static_cast<Type (*)(Dims)>(&f32)}) {
    for (const int64_t rows : {1, 3, 8}) {
      for (const char* vmem : {"core.vmem_kib=16384", "core.vmem_kib=1024", "core.vmem_kib=256"}) {
        SCOPED_TRACE(std::string(vmem) + ", " + std::to_string(rows) + " rows");
        GraphBuilder b;
        Value* x = b.arg(type({rows, 700}));
        Value *v = b.arg(type({700, 520})), *w = b.arg(type({640, 520}));
        Value* y = dot(b, x, v, contract({1}, {0}), type({rows, 520}));
        Value* z = dot(b, y, w, contract({1}, {1}), type({rows, 640}));
        Value* sum = b.op(Kind::kAdd, {z, z}, type({rows, 640}));
        Value* turned = dot(b, w, y, contract({1}, {1}), type({640, rows}));
        RunOptions o;
        o.tolerance = 0;
        o.overrides = {vmem};
        check_graph(b.done({y, sum, turned}), o);
      }
    }
  }
}

// Heads of few features side by side in memory, and results that lie so; with VMEM for a group of
// them, or for one.
TEST(DotGeneral, HeadsShareTheirLoadsAndStores) {
  const Dims rows = {2, 96, 8, 64}, cols = {2, 160, 8, 64}, each = {2, 8, 96, 160};
  for (const auto type : {&bf16, static_cast<Type (*)(Dims)>(&f32)}) {
    for (const char* vmem : {"core.vmem_kib=512", "core.vmem_kib=1024", "core.vmem_kib=16384"}) {
      GraphBuilder b;
      Value* q = b.arg(type(rows));
      Value* k = b.arg(type(cols));
      Value* scores = dot(b, q, k, contract({3}, {3}, {0, 2}, {0, 2}), type(each));
      Value* given = b.arg(type(each));
      const auto home = [&](Value* v, const Dims& dims) {
        return b.op(Kind::kTranspose, {v}, type(dims), DimsAttrs{{0, 2, 1, 3}});
      };
      Value* of_rows = dot(b, given, k, contract({3}, {1}, {0, 1}, {0, 2}), type({2, 8, 96, 64}));
      Value* of_cols = dot(b, given, q, contract({2}, {1}, {0, 1}, {0, 2}), type({2, 8, 160, 64}));
      Value* turned = dot(b, q, given, contract({1}, {2}, {0, 2}, {0, 1}), type({2, 8, 64, 160}));
      RunOptions o;
      o.tolerance = 0;
      o.overrides = {vmem};
      check_graph(b.done({scores, home(of_rows, rows), home(of_cols, cols), turned,
                          b.op(Kind::kTranspose, {turned}, type(cols), DimsAttrs{{0, 3, 1, 2}})}),
                  o);
    }
  }
}

TEST(DotGeneral, TransposedResultAndViewsAreFoldedIn) {
  GraphBuilder b;
  Value* x = b.arg(f32({25, 130}));
  Value* y = b.arg(f32({25, 40}));
  Value* z = dot(b, y, x, contract({0}, {0}), f32({40, 130}));
  Value* t = b.op(Kind::kTranspose, {z}, f32({130, 40}), DimsAttrs{{1, 0}});
  Value* r = b.op(Kind::kReshape, {b.arg(f32({5, 5, 130}))}, f32({25, 130}));
  Value* s = b.op(Kind::kSlice, {r}, f32({10, 64}), SliceAttrs{{3, 5}, {23, 69}, {2, 1}});
  Value* q = dot(b, s, t, contract({1}, {0}, {}, {}), f32({10, 40}));
  (void)q;
  Value* p = b.op(Kind::kSlice, {t}, f32({64, 40}), SliceAttrs{{2, 0}, {130, 40}, {2, 1}});
  Value* u = dot(b, s, p, contract({1}, {0}), f32({10, 40}));
  RunOptions o;
  o.tolerance = 0;
  b.region().ops.erase(std::find_if(b.region().ops.begin(), b.region().ops.end(),
                                    [&](const auto& op) { return op.get() == q->def; }));
  check_graph(b.done({t, u}), o);
}

TEST(DotGeneral, OneOrTwoUnitsGiveTheSameBits) {
  for (const char* units : {"core.mxus=1", "core.mxus=2"}) {
    GraphBuilder b;
    Value* z =
        dot(b, b.arg(f32({100, 500})), b.arg(f32({500, 300})), contract({1}, {0}), f32({100, 300}));
    RunOptions o;
    o.tolerance = 0;
    o.overrides = {units};
    check_graph(b.done({z}), o);
  }
}

struct ReduceCase {
  Dims shape, dims;
};

class Reduce : public testing::TestWithParam<ReduceCase> {};

TEST_P(Reduce, EveryKindAndType) {
  const ReduceCase& c = GetParam();
  Dims kept;
  for (size_t d = 0; d < c.shape.size(); ++d) {
    if (std::find(c.dims.begin(), c.dims.end(), static_cast<int64_t>(d)) == c.dims.end()) {
      kept.push_back(c.shape[d]);
    }
  }
  for (const bool small : {false, true}) {
    GraphBuilder b;
    Value* x = b.arg(f32(c.shape));
    Value* n = b.arg(i32(c.shape));
    Value* p = b.arg(i1(c.shape));
    Value* e = b.op(Kind::kMultiply, {x, x}, f32(c.shape));
    const auto init = [&](Elem t, double v) { return b.constant(Type{t, {}}, v); };
    const std::vector<Value*> results = {
        b.reduce(x, init(Elem::kF32, 0), c.dims, f32(kept), Kind::kAdd),
        b.reduce(e, init(Elem::kF32, 3), c.dims, f32(kept), Kind::kAdd),
        b.reduce(x, init(Elem::kF32, -INFINITY), c.dims, f32(kept), Kind::kMaximum),
        b.reduce(x, init(Elem::kF32, INFINITY), c.dims, f32(kept), Kind::kMinimum),
        b.reduce(n, init(Elem::kI32, 0), c.dims, i32(kept), Kind::kAdd),
        b.reduce(n, init(Elem::kI32, -5), c.dims, i32(kept), Kind::kMaximum),
        b.reduce(p, init(Elem::kI1, 1), c.dims, i1(kept), Kind::kAnd),
        b.reduce(p, init(Elem::kI1, 0), c.dims, i1(kept), Kind::kOr)};
    RunOptions o;
    o.small_integers = true;  // every sum is exact: bits do not depend on the order
    o.tolerance = 0;
    if (small) {
      o.overrides = kSmallVmem;
    }
    SCOPED_TRACE(small ? "64 KiB" : "16 MiB");
    check_graph(b.done(results), o);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Reduce,
    testing::Values(ReduceCase{{1}, {0}}, ReduceCase{{7}, {0}}, ReduceCase{{129}, {0}},
                    ReduceCase{{3000}, {0}}, ReduceCase{{25, 10}, {0}}, ReduceCase{{25, 10}, {1}},
                    ReduceCase{{25, 10}, {0, 1}}, ReduceCase{{300, 129}, {0}},
                    ReduceCase{{129, 300}, {1}}, ReduceCase{{7, 1, 127}, {0, 1}},
                    ReduceCase{{5, 6, 7, 8}, {1, 3}}, ReduceCase{{5, 6, 7, 8}, {0, 2}},
                    ReduceCase{{9, 130, 11}, {1}}, ReduceCase{{2, 3, 140, 5}, {0, 1, 3}}));

// A mask that is the same for all heads, and sums of rows: in one kernel, or in one of merged rows.
TEST(Reduce, SumsOfRowsHaveOneOrder) {
  for (const int64_t cols : {50, 300}) {
    GraphBuilder b;
    const Type type = f32({5, 40, cols});
    Value* mask = b.op(Kind::kBroadcastInDim, {b.arg(f32({40, cols}))}, type, DimsAttrs{{1, 2}});
    Value* p = b.op(Kind::kMultiply, {b.arg(type), mask}, type);
    Value* zero = b.constant(f32({}), 0);
    Value* together = b.reduce(p, zero, {2}, f32({5, 40}), Kind::kAdd);
    Value* rows = b.op(Kind::kReshape, {p}, f32({200, cols}));
    Value* merged = b.reduce(rows, zero, {1}, f32({200}), Kind::kAdd);
    RunOptions o;
    o.overrides = kSmallVmem;
    const Outcome out = check_graph(b.done({p, together, merged}), o);
    EXPECT_EQ(out.results[0][1].data, out.results[0][2].data);
  }
}

TEST(Loops, BroadcastTransposeReshapeSliceReverse) {
  for (const bool small : {false, true}) {
    GraphBuilder b;
    Value* x = b.arg(f32({30, 7, 129}));
    Value* row = b.arg(f32({129}));
    Value* col = b.arg(f32({30}));
    Value* br = b.op(Kind::kBroadcastInDim, {row}, f32({30, 7, 129}), DimsAttrs{{2}});
    Value* bc = b.op(Kind::kBroadcastInDim, {col}, f32({30, 7, 129}), DimsAttrs{{0}});
    Value* sum = b.op(Kind::kAdd, {b.op(Kind::kMultiply, {x, br}, x->type), bc}, x->type);
    Value* t = b.op(Kind::kTranspose, {sum}, f32({129, 30, 7}), DimsAttrs{{2, 0, 1}});
    Value* flat = b.op(Kind::kReshape, {t}, f32({129, 210}));
    Value* neg = b.op(Kind::kNegate, {flat}, f32({129, 210}));
    Value* again = b.op(Kind::kReshape, {x}, f32({210, 129}));
    Value* cut = b.op(Kind::kSlice, {again}, f32({50, 42}), SliceAttrs{{3, 1}, {203, 127}, {4, 3}});
    Value* rev = b.op(Kind::kReverse, {cut}, f32({50, 42}), DimsAttrs{{0, 1}});
    Value* deep =
        b.op(Kind::kReshape, {b.op(Kind::kTranspose, {again}, f32({129, 210}), DimsAttrs{{1, 0}})},
             f32({30, 7, 129}));
    Value* mixed = b.op(Kind::kSubtract, {deep, bc}, x->type);
    RunOptions o;
    o.tolerance = 0;
    if (small) {
      o.overrides = kSmallVmem;
    }
    check_graph(b.done({sum, neg, rev, mixed, t}), o);
  }
}

TEST(Loops, IotaSelectCompareConvert) {
  GraphBuilder b;
  Value* labels = b.arg(i32({25}));
  Value* at = b.op(Kind::kIota, {}, i32({25, 10}), DimAttrs{1});
  Value* spread = b.op(Kind::kBroadcastInDim, {labels}, i32({25, 10}), DimsAttrs{{0}});
  Value* hit = b.op(Kind::kCompare, {at, spread}, i1({25, 10}),
                    CompareAttrs{CompareDirection::kEq, CompareType::kSigned});
  Value* hot = b.op(Kind::kConvert, {hit}, f32({25, 10}));
  Value* half = b.op(Kind::kConvert, {hot}, bf16({25, 10}));
  Value* rows = b.op(Kind::kIota, {}, f32({25, 10}), DimAttrs{0});
  Value* pick = b.op(Kind::kSelect, {hit, rows, hot}, f32({25, 10}));
  Value* count = b.op(Kind::kConvert, {pick}, i32({25, 10}));
  Value* unsigned_count = b.op(Kind::kConvert, {count}, {Elem::kU32, {25, 10}});
  Value* no = b.op(Kind::kNot, {hit}, i1({25, 10}));
  RunOptions o;
  o.tolerance = 0;
  check_graph(b.done({hit, hot, half, pick, count, unsigned_count, no, at}), o);
}

TEST(Loops, LargerThanVmemStreamsInPlaceAndOutOfPlace) {
  GraphBuilder b;
  const Type t = f32({90, 1000});
  Value* w = b.arg(t);
  Value* m = b.arg(t);
  Value* g = b.arg(t);
  Value* scale = b.arg(f32({}));
  Value* s = b.op(Kind::kBroadcastInDim, {scale}, t, DimsAttrs{{}});
  Value* m2 = b.op(Kind::kAdd, {b.op(Kind::kMultiply, {m, s}, t), g}, t);
  Value* w2 = b.op(Kind::kSubtract, {w, m2}, t);
  Module& module = b.done({w2, m2});
  module.main->args[0].alias_result = 0;
  module.main->args[1].alias_result = 1;
  RunOptions o;
  o.tolerance = 0;
  o.overrides = kSmallVmem;
  const Outcome out = check_graph(module, o);
  ASSERT_EQ(out.executable.results.size(), 2U);
  EXPECT_EQ(out.executable.results[0]->slot, out.executable.args[0]->slot);
  EXPECT_EQ(out.executable.results[1]->slot, out.executable.args[1]->slot);
  EXPECT_EQ(std::ranges::count(out.executable.slots, exe::SlotKind::result,
                               [](const auto& slot) { return slot->kind; }),
            0);
  EXPECT_GT(out.commands, 20);
}

TEST(Results, SwappedDonatedArgumentsAndRepeatedResults) {
  GraphBuilder b;
  Value* x = b.arg(f32({300}));
  Value* y = b.arg(f32({300}));
  Value* s = b.op(Kind::kAdd, {x, y}, f32({300}));
  Module& module = b.done({y, x, s, s, x});
  module.main->args[0].alias_result = 0;
  module.main->args[1].alias_result = 1;
  RunOptions o;
  o.tolerance = 0;
  check_graph(module, o);
}

TEST(Results, DonatedArgumentReadAfterItsResultIsMade) {
  GraphBuilder b;
  Value* x = b.arg(f32({40, 30}));
  Value* n = b.op(Kind::kNegate, {x}, f32({40, 30}));
  Value* d = dot(b, n, x, contract({1}, {1}), f32({40, 40}));
  Value* t = b.op(Kind::kTranspose, {x}, f32({30, 40}), DimsAttrs{{1, 0}});
  Value* e = b.op(Kind::kExp, {t}, f32({30, 40}));
  Module& module = b.done({n, d, e});
  module.main->args[0].alias_result = 0;
  RunOptions o;
  check_graph(module, o);
}

TEST(Moves, ConcatenateEveryDim) {
  for (int64_t dim = 0; dim < 3; ++dim) {
    GraphBuilder b;
    Dims other{4, 5, 6}, sum{4, 5, 6};
    other[static_cast<size_t>(dim)] = 3;
    sum[static_cast<size_t>(dim)] += 3 + other[static_cast<size_t>(dim)];
    Value* x = b.arg(f32({4, 5, 6}));
    Value* y = b.arg(f32(other));
    Value* c = b.constant(f32(other), 2.5);
    Value* z = b.op(Kind::kConcatenate, {x, y, c}, f32(sum), DimAttrs{dim});
    RunOptions o;
    o.tolerance = 0;
    check_graph(b.done({z, b.op(Kind::kNegate, {z}, f32(sum))}), o);
  }
}

// Sums over groups of cores, from one element to several pieces, with exact sums.
TEST(Collectives, EverySizeGroupAndKind) {
  const std::vector<Groups> all = {{{0, 1, 2, 3, 4, 5, 6, 7}},
                                   {{0, 1}, {2, 3}, {4, 5}, {6, 7}},
                                   {{0, 2, 4, 6}, {1, 3, 5, 7}},
                                   {{0, 3}, {1, 2}, {4, 7}, {5, 6}},
                                   {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}};
  for (const Groups& groups : all) {
    for (const int64_t count : {1, 300, 40000, 400000}) {
      if (count > 40000 && groups.size() > 2) {
        continue;
      }
      GraphBuilder b(8);
      b.module().mesh.name = "mesh";
      b.module().mesh.axes = {{"d", 8}};
      Value* x = b.arg(f32({count}));
      b.module().main->args[0].global.dims[0] = 8 * count;
      b.module().main->args[0].sharding.dim_axes = {{0}};
      CollectiveAttrs a;
      a.groups = groups;
      Value* s = b.with_body(b.op(Kind::kAllReduce, {x}, x->type, a), Kind::kAdd);
      Value* m = b.with_body(b.op(Kind::kAllReduce, {x}, x->type, a), Kind::kMaximum);
      Value* y = b.op(Kind::kAdd, {s, m}, x->type);
      Module& module = b.done({s, y});
      for (ResultInfo& r : module.main->results) {
        r.global.dims[0] = 8 * count;
        r.sharding.dim_axes = {{0}};
      }
      RunOptions o;
      o.small_integers = true;
      o.tolerance = 0;
      o.order_seeds = {count > 1000 ? 0u : 3u};
      SCOPED_TRACE(std::to_string(groups.size()) + " groups, " + std::to_string(count));
      check_graph(module, o);
    }
  }
}

TEST(Collectives, AllCoresGetTheSameBitsOfInexactSums) {
  GraphBuilder b(8);
  b.module().mesh.axes = {{"d", 8}};
  Value* x = b.arg(f32({50000}));
  b.module().main->args[0].global.dims[0] = 400000;
  b.module().main->args[0].sharding.dim_axes = {{0}};
  CollectiveAttrs a;
  a.groups = {{0, 1, 2, 3, 4, 5, 6, 7}};
  Value* s = b.with_body(b.op(Kind::kAllReduce, {x}, x->type, a), Kind::kAdd);
  const Outcome out = check_graph(b.done({s}));
  for (size_t core = 1; core < 8; ++core) {
    EXPECT_EQ(out.results[core][0].data, out.results[0][0].data) << core;
  }
}

TEST(Collectives, OddGroupsAreAnError) {
  GraphBuilder b(8);
  CollectiveAttrs a;
  a.groups = {{0, 1, 2}, {3, 4, 5}, {6, 7}};
  Value* x = b.arg(f32({4}));
  Value* s = b.with_body(b.op(Kind::kAllReduce, {x}, x->type, a), Kind::kAdd);
  EXPECT_THROW(generate(b.done({s}), spec::load_board("v3_8")), Error);
}

TEST(Empty, DimsOfZero) {
  GraphBuilder b;
  Value* x = b.arg(f32({0, 5}));
  Value* y = b.op(Kind::kNegate, {x}, f32({0, 5}));
  Value* s = b.reduce(x, b.constant(f32({}), 3), {0}, f32({5}), Kind::kAdd);
  Value* d = dot(b, x, x, contract({0}, {0}), f32({5, 5}));
  RunOptions o;
  o.tolerance = 0;
  check_graph(b.done({y, s, d}), o);
}

// The window view is read by strides, in VMEM as a whole and in streamed tiles.
TEST(Window, OverlappingTapsAreReducedWithoutACopy) {
  for (const bool small : {false, true}) {
    GraphBuilder b;
    const Type in = f32({3, 17, 19, 5}), view = f32({3, 8, 9, 5, 1, 3, 2, 1}),
               out = f32({3, 8, 9, 5});
    Value* x = b.arg(in);
    Value* w =
        b.op(Kind::kWindow, {x}, view, WindowViewAttrs{{1, 3, 2, 1}, {1, 2, 2, 1}, {1, 1, 2, 1}});
    Value* s = b.reduce(w, b.constant(f32({}), 0), {4, 5, 6, 7}, out, Kind::kAdd);
    Value* m = b.reduce(w, b.constant(f32({}), -5), {4, 5, 6, 7}, out, Kind::kMaximum);
    RunOptions o;
    o.overrides = small ? kSmallVmem : std::vector<std::string>{};
    check_graph(b.done({s, m}), o);
  }
}

// Whole blocks of twelve streams of a sum are more than VMEM holds: the kernel is cut while it is
// planned, and what comes behind it reads both halves.
TEST(Cut, KernelsThatFitInNoTiles) {
  GraphBuilder b;
  const Type type = i32({1 << 15});
  Value* x = b.arg(type);
  Value* product = x;
  for (int i = 0; i < 11; ++i) {
    product = b.op(Kind::kMultiply, {product, b.arg(type)}, type);
  }
  Value* sum = b.reduce(product, b.constant(i32({}), 0), {0}, i32({}), Kind::kAdd);
  Value* spread = b.op(Kind::kBroadcastInDim, {sum}, type, DimsAttrs{{}});
  Value* y = b.op(Kind::kAdd, {b.op(Kind::kMultiply, {spread, x}, type), product}, type);
  RunOptions o;
  o.overrides = kSmallVmem;
  Module& m = b.done({y, sum});
  const spec::BoardParams board = spec::load_board("v3_8", kSmallVmem);
  KernelProgram kernels = make_kernels(m, board);
  const size_t before = kernels.kernels.size();
  emit_program(m, kernels, board, {0});
  EXPECT_GT(kernels.kernels.size(), before);
  check_graph(m, o);
}

// Activation and sums over rows run on the blocks of the matmul; neither its tiles nor the
// number of matrix units may show in the bits.
TEST(Epilogue, SumsDoNotDependOnTiles) {
  std::vector<std::vector<Tensor>> first;
  for (const std::vector<std::string>& overrides : std::vector<std::vector<std::string>>{
           {}, {"core.vmem_kib=512"}, {"core.vmem_kib=128"}, {"core.mxus=1"}}) {
    GraphBuilder b;
    Value* x = b.arg(f32({1000, 300}));
    Value* w = b.arg(f32({300, 200}));
    Value* zero = b.constant(f32({1000, 200}), 0);
    Value* d = dot(b, x, w, contract({1}, {0}), f32({1000, 200}));
    Value* y = b.op(Kind::kMaximum, {d, zero}, d->type);
    Value* s = b.reduce(y, b.constant(f32({}), 0), {0}, f32({200}), Kind::kAdd);
    RunOptions o;
    o.overrides = overrides;
    o.tolerance = 1e-3;  // of the sums of 1,000 rows
    Module& m = b.done({y, s});
    if (first.empty()) {
      const KernelProgram kernels = make_kernels(m, spec::load_board("v3_8"));
      EXPECT_EQ(kernels.kernels.size(), 3u) << print(kernels);  // 2 copy_out
    }
    const Outcome out = check_graph(m, o);
    if (first.empty()) {
      first = out.results;
    }
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(out.results[0][i].data, first[0][i].data) << "result " << i;
    }
  }
}

// Scores of heads with their mask and the largest and the sum of a row; blocks of a head or less.
TEST(Epilogue, BlocksOfHeadsDoNotDependOnTiles) {
  std::vector<std::vector<Tensor>> first;
  for (const std::vector<std::string>& overrides : std::vector<std::vector<std::string>>{
           {}, {"core.vmem_kib=1024"}, {"core.vmem_kib=256"}, {"core.mxus=1"}}) {
    GraphBuilder b;
    const Type type = bf16({2, 8, 96, 160});
    Value* q = b.arg(bf16({2, 96, 8, 64}));
    Value* k = b.arg(bf16({2, 160, 8, 64}));
    Value* scores = dot(b, q, k, contract({3}, {3}, {0, 2}, {0, 2}), type);
    Value* mask = b.op(Kind::kBroadcastInDim, {b.arg(bf16({96, 160}))}, type, DimsAttrs{{2, 3}});
    Value* y = b.op(Kind::kMultiply, {scores, mask}, type);
    Value* most = b.reduce(y, b.constant(bf16({}), -1000), {3}, bf16({2, 8, 96}), Kind::kMaximum);
    Value* wide = b.op(Kind::kConvert, {y}, f32(type.dims));
    Value* sums = b.reduce(wide, b.constant(f32({}), 0), {3}, f32({2, 8, 96}), Kind::kAdd);
    RunOptions o;
    o.overrides = overrides;
    Module& m = b.done({y, most, sums});
    if (first.empty()) {
      const KernelProgram kernels = make_kernels(m, spec::load_board("v3_8"));
      EXPECT_EQ(kernels.kernels.size(), 4u) << print(kernels);  // 3 copy_out
    }
    const Outcome out = check_graph(m, o);
    if (first.empty()) {
      first = out.results;
    }
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(out.results[0][i].data, first[0][i].data) << "result " << i;
    }
  }
}

TEST(Errors, NameTheOpAndItsLine) {
  GraphBuilder b;
  Value* x = b.arg(i32({4}));
  DotAttrs dot;
  dot.lhs_contract = dot.rhs_contract = {0};
  Value* y = b.op(Kind::kDotGeneral, {x, x}, i32({}), dot);
  const Module& m = b.done({y});
  try {
    generate(m, spec::load_board("v3_8"));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("test.py:1"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("dot_general"), std::string::npos) << e.what();
  }
}

TEST(Errors, ListTheLargestBuffersOfAProgramThatDoesNotFit) {
  GraphBuilder b;
  Value* x = b.arg(f32({1 << 20, 4096}));
  Value* y = b.op(Kind::kNegate, {x}, x->type);
  const Module& m = b.done({y});
  try {
    generate(m, spec::load_board("v3_8"));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("17179869184 bytes: argument 0"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace tpu::compiler::test
