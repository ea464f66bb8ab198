// Padding kernels: every sign of low and high, interior padding, computed values, views in front,
// results in VMEM and in HBM.
#include "../../unit/compiler/graph_builder.hpp"
#include "run_compiled.hpp"

namespace tpu::compiler::test {
namespace {

Type padded(const Type& in, const PadAttrs& a) {
  Type out = in;
  for (size_t d = 0; d < out.dims.size(); ++d) {
    const int64_t n = in.dims[d];
    out.dims[d] =
        std::max<int64_t>(0, a.low[d] + a.high[d] + n + (n > 0 ? (n - 1) * a.interior[d] : 0));
  }
  return out;
}

Value* pad(GraphBuilder& b, Value* x, Value* value, const PadAttrs& a) {
  return b.op(Kind::kPad, {x, value}, padded(x->type, a), a);
}

RunOptions exact(bool small) {
  RunOptions o;
  o.tolerance = 0;
  if (small) {
    o.overrides = {"core.vmem_kib=64"};
  }
  return o;
}

const std::vector<std::pair<Dims, PadAttrs>> kForms = {
    {{7}, {{2}, {3}, {0}}},
    {{7}, {{-2}, {-3}, {0}}},
    {{7}, {{3}, {-9}, {1}}},
    {{7}, {{-3}, {2}, {2}}},
    {{7}, {{-20}, {25}, {0}}},  // nothing of the operand is left
    {{1}, {{0}, {1}, {5}}},
    {{0}, {{2}, {1}, {3}}},
    {{}, {{}, {}, {}}},
    {{5, 130}, {{1, 2}, {0, 0}, {0, 0}}},
    {{5, 130}, {{0, -1}, {2, 3}, {1, 2}}},
    {{2, 9, 11, 3}, {{0, 1, 2, 0}, {0, 1, 0, 0}, {0, 0, 0, 0}}},
    {{2, 9, 11, 3}, {{0, 1, -2, 0}, {1, -1, 4, 0}, {0, 1, 2, 0}}},
    {{2, 3, 2, 3, 2, 3}, {{1, 1, 1, 1, 1, 1}, {1, 0, 1, 0, 1, 0}, {0, 0, 0, 0, 0, 0}}},
    {{40, 60, 33}, {{1, 1, 1}, {1, 1, 1}, {0, 0, 0}}},
};

TEST(Pad, AllFormsAndTypes) {
  for (const bool small : {false, true}) {
    for (const Elem e : {Elem::kF32, Elem::kBf16, Elem::kI1, Elem::kI32, Elem::kU8, Elem::kI64}) {
      GraphBuilder b;
      std::vector<Value*> out;
      for (const auto& [dims, attrs] : kForms) {
        Value* x = b.arg({e, dims});
        Value* seven = b.constant({e, {}}, e == Elem::kI1 ? 1 : 7);
        out.push_back(pad(b, x, seven, attrs));
      }
      SCOPED_TRACE(std::string(elem_name(e)) + (small ? " 64 KiB" : ""));
      check_graph(b.done(out), exact(small));
    }
  }
}

TEST(Pad, ComputedValue) {
  for (const bool small : {false, true}) {
    GraphBuilder b;
    Value* v = b.arg(f32({}));
    Value* w = b.op(Kind::kAdd, {v, v}, f32({}));
    std::vector<Value*> out;
    for (const auto& [dims, attrs] : kForms) {
      out.push_back(pad(b, b.arg(f32(dims)), w, attrs));
    }
    check_graph(b.done(out), exact(small));
  }
}

TEST(Pad, ReadsThroughViewsAndFeedsKernels) {
  for (const bool small : {false, true}) {
    GraphBuilder b;
    Value* x = b.arg(f32({20, 30}));
    Value* zero = b.constant(f32({}), 0);
    Value* rows = b.op(Kind::kReverse, {x}, f32({20, 30}), DimsAttrs{{0}});
    Value* cut = b.op(Kind::kSlice, {rows}, f32({10, 17}), SliceAttrs{{1, 3}, {20, 20}, {2, 1}});
    Value* turned = b.op(Kind::kTranspose, {x}, f32({30, 20}), DimsAttrs{{1, 0}});
    Value* wide = b.op(Kind::kBroadcastInDim, {b.arg(f32({20}))}, f32({6, 20}), DimsAttrs{{1}});
    Value* sum = b.op(Kind::kAdd, {x, x}, f32({20, 30}));
    Value* twice =
        pad(b, pad(b, sum, zero, {{1, 1}, {1, 1}, {0, 0}}), zero, {{2, 2}, {2, 2}, {0, 0}});
    Value* iota = b.op(Kind::kIota, {}, i32({9}), DimAttrs{0});
    Value* minus = b.constant(i32({}), -1);
    std::vector<Value*> out = {
        pad(b, cut, zero, {{1, 1}, {1, 1}, {0, 0}}), pad(b, turned, zero, {{1, 1}, {1, 1}, {0, 1}}),
        pad(b, wide, zero, {{1, 1}, {1, 1}, {0, 0}}),
        b.op(Kind::kMultiply, {twice, twice}, twice->type), pad(b, iota, minus, {{1}, {1}, {0}})};
    check_graph(b.done(out), exact(small));
  }
}

// One copy and two fills a padded dimension, however large the result is.
TEST(Pad, TakesFewCommands) {
  GraphBuilder b;
  Value* x = b.arg(f32({8, 112, 112, 64}));
  const Outcome got = check_graph(
      b.done({pad(b, x, b.constant(f32({}), 1), {{0, 1, 1, 0}, {0, 1, 1, 0}, {0, 0, 0, 0}})}),
      exact(false));
  EXPECT_LE(got.commands, 10);
}

}  // namespace
}  // namespace tpu::compiler::test
