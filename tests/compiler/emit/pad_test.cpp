// Padding kernels: every sign of low and high, interior padding, computed values, views in front,
// results in VMEM and in HBM.
#include "../../unit/compiler/graph_builder.hpp"
#include "../run_compiled.hpp"

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

// A window of the padded value: some of its elements, in steps.
Value* part(GraphBuilder& b, Value* v, std::mt19937& random, const Dims& size) {
  SliceAttrs a;
  for (size_t d = 0; d < size.size(); ++d) {
    const int64_t n = v->type.dims[d];
    const int64_t step =
        size[d] > 1 && random() % 3 == 0 ? std::min<int64_t>(2, (n - 1) / (size[d] - 1)) : 1;
    const int64_t reach = (size[d] - 1) * step + 1;
    const auto at = static_cast<int64_t>(random() % static_cast<uint64_t>(n - reach + 1));
    a.start.push_back(at);
    a.limit.push_back(at + reach);
    a.stride.push_back(step);
  }
  return b.op(Kind::kSlice, {v}, {v->type.elem, size}, a);
}

// Loops over windows of large padded values, and over the values themselves: their tiles are read
// from the operand.
TEST(Pad, LargeOnesAreReadFromTheirOperands) {
  for (uint32_t seed = 0; seed < 36; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto draw = [&](int64_t lo, int64_t hi) {
      return lo + static_cast<int64_t>(random() % static_cast<uint64_t>(hi - lo + 1));
    };
    GraphBuilder b;
    const Elem e = std::array{Elem::kF32, Elem::kBf16, Elem::kI32, Elem::kU8}[seed % 4];
    const std::array<Dims, 4> shapes = {Dims{draw(2, 5), draw(20, 40), draw(20, 40), draw(1, 40)},
                                        Dims{draw(60, 200), draw(100, 300)},
                                        Dims{draw(30, 60), 1, draw(20, 50), draw(20, 50)},
                                        Dims{draw(20000, 40000)}};
    const Dims dims = shapes[random() % shapes.size()];
    PadAttrs a;
    Dims window;
    for (const int64_t n : dims) {
      a.low.push_back(n > 1 ? draw(-2, 3) : draw(0, 1));
      a.high.push_back(n > 1 ? draw(-1, 3) : draw(0, 1));
      a.interior.push_back(seed % 3 == 0 && n < 1000 ? draw(0, 2) : 0);
      const int64_t spread = n + (n - 1) * a.interior.back();
      window.push_back(std::max<int64_t>(1, spread + a.low.back() + a.high.back() - draw(0, 3)));
    }
    // Both are made by kernels: an argument's copies would be the argument itself.
    Value* x = b.arg({e, dims});
    Value* twice = b.op(Kind::kAdd, {x, x}, {e, dims});
    Value* v = pad(b, twice, b.constant({e, {}}, 3), a);
    Value* sum =
        b.op(Kind::kAdd, {part(b, v, random, window), part(b, v, random, window)}, {e, window});
    Value* more = b.op(Kind::kMultiply, {sum, part(b, v, random, window)}, {e, window});
    std::vector<Value*> out = {more};
    if (random() % 2 == 0) {
      out.push_back(b.op(Kind::kMaximum, {v, v}, v->type));
    }
    if (dims.size() == 2 && random() % 2 == 0) {
      Value* turned =
          b.op(Kind::kTranspose, {v}, {e, {v->type.dims[1], v->type.dims[0]}}, DimsAttrs{{1, 0}});
      out.push_back(b.op(Kind::kAdd, {turned, turned}, turned->type));
    }
    RunOptions o = exact(true);
    o.small_integers = true;
    check_graph(b.done(out), o);
  }
}

// What the input gradient of a strided convolution is: phases, padded to one length, between each
// other; and such values inside of a pad.
TEST(Pad, LargeConcatenationsAreReadFromTheirOperands) {
  for (uint32_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto draw = [&](int64_t lo, int64_t hi) {
      return lo + static_cast<int64_t>(random() % static_cast<uint64_t>(hi - lo + 1));
    };
    GraphBuilder b;
    const Elem e = std::array{Elem::kF32, Elem::kBf16, Elem::kI32}[seed % 3];
    const int64_t images = draw(1, 3), rows = draw(10, 30), cols = draw(10, 30),
                  depth = draw(1, 40);
    Value* zero = b.constant({e, {}}, 0);
    std::vector<Value*> phases;
    const int64_t dim = draw(1, 3);  // phases inside of rows, of columns, or beside each other
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t less = i == 1 ? draw(0, 1) : 0;
      const Dims dims = {images, rows, cols - less, depth};
      Value* x = b.arg({e, dims});
      Value* sum = b.op(Kind::kAdd, {x, x}, {e, dims});
      Value* whole = pad(b, sum, zero, {{0, 0, 0, 0}, {0, 0, less, 0}, {0, 0, 0, 0}});
      Dims split = {images, rows, cols, depth};
      split.insert(split.begin() + dim, 1);
      phases.push_back(b.op(Kind::kReshape, {whole}, {e, split}));
    }
    Dims joined = phases[0]->type.dims;
    joined[static_cast<size_t>(dim)] = 2;
    Value* both = b.op(Kind::kConcatenate, phases, {e, joined}, DimAttrs{dim});
    Dims flat = {images, rows, cols, depth};
    flat[static_cast<size_t>(dim) - 1] *= 2;
    Value* v = b.op(Kind::kReshape, {both}, {e, flat});
    if (seed % 2 == 0) {
      v = pad(b, v, b.constant({e, {}}, 5), {{0, 1, 2, 0}, {1, 0, -1, 0}, {0, 0, 0, 0}});
    }
    Dims window = v->type.dims;
    for (int64_t& n : window) {
      n -= n > 4 ? draw(0, 2) : 0;
    }
    Value* sum =
        b.op(Kind::kAdd, {part(b, v, random, window), part(b, v, random, window)}, {e, window});
    RunOptions o = exact(true);
    o.small_integers = true;
    check_graph(b.done({sum}), o);
  }
}

TEST(Pad, LargeOnesFeedContractionsFromTheirOperands) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto draw = [&](int64_t lo, int64_t hi) {
      return lo + static_cast<int64_t>(random() % static_cast<uint64_t>(hi - lo + 1));
    };
    GraphBuilder b;
    const int64_t m = draw(50, 200), k = draw(50, 300), n = draw(20, 200);
    Value* zero = b.constant(f32({}), 0);
    Value* x = b.arg(f32({m, k}));
    Value* y = b.arg(f32({k + 3, n}));
    Value* left = pad(b, b.op(Kind::kAdd, {x, x}, x->type), zero, {{2, 1}, {-1, 2}, {0, 0}});
    Value* right = pad(b, b.op(Kind::kAdd, {y, y}, y->type), zero, {{-1, 3}, {1, 0}, {0, 0}});
    DotAttrs dot;
    dot.lhs_contract = {1};
    dot.rhs_contract = {0};
    Value* product = b.op(Kind::kDotGeneral, {left, right}, f32({m + 1, n + 3}), dot);
    dot.lhs_contract = {0};  // the same value, from the other side
    dot.rhs_contract = {0};
    Value* square = b.op(Kind::kDotGeneral, {left, left}, f32({k + 3, k + 3}), dot);
    RunOptions o;
    o.overrides = {"core.vmem_kib=" + std::to_string(seed % 2 == 0 ? 64 : 128)};
    o.tolerance = 0;
    o.small_integers = true;
    check_graph(b.done({product, square}), o);
  }
}

// A windowed sum over a padded value of 26 MB: no memory but for the operand and the result, whose
// bytes pass the DMA queues once.
TEST(Pad, LargeOnesTakeNoMemory) {
  GraphBuilder b;
  const Dims dims{8, 112, 112, 64};
  Value* x = b.arg(f32(dims));
  Value* v = pad(b, x, b.constant(f32({}), 0), {{0, 1, 1, 0}, {0, 1, 1, 0}, {0, 0, 0, 0}});
  Value* sum = nullptr;
  for (int64_t h = 0; h < 3; ++h) {
    Value* tap = b.op(Kind::kSlice, {v}, f32(dims),
                      SliceAttrs{{0, h, 1, 0}, {8, h + 112, 113, 64}, {1, 1, 1, 1}});
    sum = sum == nullptr ? tap : b.op(Kind::kAdd, {sum, tap}, f32(dims));
  }
  const Outcome got = check_graph(b.done({sum}), exact(false));
  EXPECT_LE(got.executable.hbm_bytes, 2 * x->type.bytes() + 65536);
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
