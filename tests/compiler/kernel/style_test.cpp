// Styles on a network of two layers with RMSProp: equal bits, and what the rules of `xla2019` make
// of it: order, traffic, kernels.
#include "entry/style.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "../../unit/compiler/graph_builder.hpp"
#include "../run_compiled.hpp"
#include "emit/emit.hpp"
#include "entry/compile.hpp"
#include "kernel/kernel_passes.hpp"
#include "passes/operand_casts.hpp"

namespace tpu::compiler::test {
namespace {

// Of one of 8 cores; each has its own rows. Arguments: weights, mean squares and momenta of both
// layers, inputs. Results: the new weights, mean squares and momenta.
class TwoLayers {
 public:
  TwoLayers(int64_t rows, int64_t nodes)
      : weights_(f32({nodes, nodes})), rows_{Elem::kBf16, {rows, nodes}} {
    b_.module().mesh.name = "mesh";
    b_.module().mesh.axes = {{"d", 8}};
    for (auto* layer : {&first_, &second_}) {
      layer->weights = state();
      layer->square = state();
      layer->momentum = state();
    }
    Value* x = b_.arg(rows_);
    ArgInfo& info = b_.module().main->args.back();
    info.global.dims[0] = 8 * rows;
    info.sharding.dim_axes = {{0}};
    Value* c1 = cast(first_);
    Value* c2 = cast(second_);
    Value* h = op(Kind::kMaximum, {dot(x, c1, 1, 0, rows_), b_.constant(rows_, 0)});
    Value* y = dot(h, c2, 1, 0, rows_);
    Value* dh = dot(y, c2, 1, 1, rows_);
    update(second_, gradient(h, y));
    update(first_, gradient(x, dh));
    b_.done(results_);
  }
  Module& module() { return b_.module(); }
  double parameters() const { return 2.0 * static_cast<double>(weights_.count()); }

 private:
  struct Layer {
    Value *weights, *square, *momentum;
  };

  Value* op(Kind kind, std::vector<Value*> operands) {
    const Type type = operands[0]->type;
    return b_.op(kind, std::move(operands), type);
  }
  Value* state() { return b_.arg(weights_); }
  Value* cast(const Layer& layer) {
    return b_.op(Kind::kConvert, {layer.weights}, {Elem::kBf16, weights_.dims});
  }
  Value* dot(Value* lhs, Value* rhs, int64_t l, int64_t r, const Type& type) {
    DotAttrs attrs;
    attrs.lhs_contract = {l};
    attrs.rhs_contract = {r};
    return b_.op(Kind::kDotGeneral, {lhs, rhs}, type, attrs);
  }
  Value* gradient(Value* in, Value* out) {
    Value* g = dot(in, out, 0, 0, {Elem::kBf16, weights_.dims});
    Value* wide = b_.op(Kind::kConvert, {g}, weights_);
    CollectiveAttrs all;
    all.groups = {{0, 1, 2, 3, 4, 5, 6, 7}};
    return b_.with_body(b_.op(Kind::kAllReduce, {wide}, weights_, all), Kind::kAdd);
  }
  Value* splat(double value) { return b_.constant(weights_, value); }
  void update(const Layer& layer, Value* g) {
    Value* change = op(Kind::kSubtract, {op(Kind::kMultiply, {g, g}), layer.square});
    Value* square = op(Kind::kAdd, {layer.square, op(Kind::kMultiply, {change, splat(0.1)})});
    Value* scaled =
        op(Kind::kMultiply, {g, op(Kind::kRsqrt, {op(Kind::kAdd, {square, splat(1)})})});
    Value* momentum = op(Kind::kAdd, {op(Kind::kMultiply, {layer.momentum, splat(0.9)}), scaled});
    for (Value* result : {op(Kind::kSubtract, {layer.weights, momentum}), square, momentum}) {
      results_.push_back(result);
    }
  }

  GraphBuilder b_{8};
  Type weights_, rows_;
  Layer first_{}, second_{};
  std::vector<Value*> results_;
};

CompileOptions options_of(Style style) {
  CompileOptions options;
  options.style = style;
  options.update_sharding = UpdateSharding::kOff;
  return options;
}

exe::ExecutableT compiled(Module& module, Style style, const std::string& board = "v2_8") {
  if (!rules_of(style).casts_in_memory) {
    read_arguments_uncast(module);
    module.number_ops();
    verify(module);
  }
  return generate(module, spec::load_board(board), options_of(style));
}

KernelProgram kernels(const Module& module, const spec::BoardParams& board, int64_t bucket_bytes) {
  KernelContext context{module, board};
  context.bucket_bytes = bucket_bytes;
  return run_kernel_passes(context);
}

TEST(Style, GivesTheSameBits) {
  const spec::BoardParams board = spec::load_board("v2_8");
  TwoLayers best(32, 256), xla(32, 256);
  const auto args = random_arguments(best.module(), RunOptions{});
  const Outcome want =
      run_executable(best.module(), compiled(best.module(), Style::kBest), board, args, 0);
  for (const uint32_t seed : {0u, 5u}) {
    const Outcome got =
        run_executable(xla.module(), compiled(xla.module(), Style::kXla2019), board, args, seed);
    for (size_t core = 0; core < 8; ++core) {
      for (size_t i = 0; i < want.results[core].size(); ++i) {
        EXPECT_EQ(want.results[core][i].data, got.results[core][i].data) << core << " " << i;
      }
    }
  }
}

TEST(Style, Xla2019SumsEachArrayByItself) {
  TwoLayers net(32, 512);  // 1 MiB a gradient
  const spec::BoardParams board = spec::load_board("v2_8");
  EXPECT_EQ(kernels(net.module(), board, kBucketBytes).buckets.size(), 1u);
  EXPECT_EQ(kernels(net.module(), board, 1).buckets.size(), 2u);
}

// All that a kernel does is over before the next one begins: exchanges, too.
TEST(Style, Xla2019RunsOneKernelAtATime) {
  TwoLayers net(32, 512);
  const spec::BoardParams board = spec::load_board("v2_8");
  KernelProgram program = kernels(net.module(), board, 1);
  const std::vector<int> cores = {0, 1, 2, 3, 4, 5, 6, 7};
  const EmittedProgram emitted =
      emit_program(net.module(), program, board, cores, {}, {.overlap = false});
  bool drained = true;
  std::optional<uint32_t> op;
  size_t changes = 0;
  for (const auto& item : emitted.listing.items) {
    if (const auto* control = std::get_if<Control>(&item)) {
      drained = drained || control->kind == Control::Kind::kDrain;
    } else if (const auto* command = std::get_if<Command>(&item)) {
      const uint32_t id = command->head().op_id;
      if (op && *op != id) {
        EXPECT_TRUE(drained) << "op " << id;
        ++changes;
      }
      drained = op == id && drained;
      op = id;
    }
  }
  EXPECT_GT(changes, 8u);
}

// Traces of real boards: 40 bytes a parameter for the optimiser, 12 for the matmuls (8 of the first
// layer, whose inputs need no gradient), 8 for the sum over the cores (docs/timing_truth.md).
TEST(Style, Xla2019MovesWhatTheTracesShow) {
  TwoLayers net(32, 2048);
  const exe::ExecutableT e = compiled(net.module(), Style::kXla2019);
  const double bytes = static_cast<double>(e.hbm_read_bytes + e.hbm_written_bytes);
  EXPECT_NEAR(bytes / net.parameters(), 40 + (12 + 8) / 2.0 + 8, 0.5);
}

TEST(Style, Xla2019GivesEachResultOfAnUpdateAKernel) {
  TwoLayers net(32, 256);
  const spec::BoardParams board = spec::load_board("v2_8");
  KernelContext context{net.module(), board};
  context.one_result = true;
  const auto& results = net.module().main->body.terminator()->operands;
  for (const Kernel& k : run_kernel_passes(context).kernels) {
    const auto updates = std::count_if(k.writes.begin(), k.writes.end(), [&](const Value* v) {
      return std::find(results.begin(), results.end(), v) != results.end();
    });
    EXPECT_LE(updates, k.kind == KernelClass::kLoop ? 1 : 0);
  }
}

// What an earlier part writes is read, what nobody writes is computed again.
TEST(Style, PartsOfAKernelReadEachOther) {
  GraphBuilder b;
  const Type type = f32({8192});
  Value* x = b.arg(type);
  Value* shared = b.op(Kind::kExp, {x}, type);
  Value* first = b.op(Kind::kNegate, {shared}, type);
  Value* second = b.op(Kind::kAdd, {first, shared}, type);
  Module& m = b.done({first, second});
  const spec::BoardParams board = spec::load_board("v2_8");
  KernelContext context{m, board};
  context.one_result = true;
  const KernelProgram program = run_kernel_passes(context);
  std::vector<const Kernel*> loops;
  for (const Kernel& k : program.kernels) {
    if (k.kind == KernelClass::kLoop) {
      loops.push_back(&k);
    }
  }
  ASSERT_EQ(loops.size(), 2u) << print(program);
  EXPECT_EQ(loops[0]->ops, (std::vector<const Op*>{shared->def, first->def}));
  EXPECT_EQ(loops[1]->ops, (std::vector<const Op*>{shared->def, second->def}));
  EXPECT_EQ(loops[1]->reads, (std::vector<const Value*>{x, first}));
}

// A result has a kernel of its own, all that others read has one together.
TEST(Style, WhatIsNoResultStaysTogether) {
  GraphBuilder b;
  const Type type = f32({64, 256});
  Value *x = b.arg(type), *y = b.arg(type);
  Value* terms = b.op(Kind::kNegate, {x}, type);
  Value* sum = b.reduce(terms, b.constant(f32({}), 0), {0}, f32({256}), Kind::kAdd);
  Value* result = b.op(Kind::kAbs, {y}, type);
  Value* wide = b.op(Kind::kBroadcastInDim, {sum}, type, DimsAttrs{{1}});
  Module& m = b.done({b.op(Kind::kDivide, {terms, wide}, type), result});
  const spec::BoardParams board = spec::load_board("v2_8");
  KernelContext context{m, board};
  context.one_result = true;
  std::vector<std::vector<const Op*>> loops;
  for (const Kernel& k : run_kernel_passes(context).kernels) {
    if (k.kind == KernelClass::kLoop) {
      loops.push_back(k.ops);
    }
  }
  ASSERT_EQ(loops.size(), 3u);
  EXPECT_EQ(loops[0], (std::vector<const Op*>{terms->def, sum->def}));
  EXPECT_EQ(loops[1], (std::vector<const Op*>{result->def}));
}

// A part that is too large for a command is cut again: what its halves share is written for the
// second of them, although another part computes it, too.
TEST(Style, PartsThatAreCutAgainShareNoBuffer) {
  GraphBuilder b;
  const Type type = f32({1024});
  Value* wide = b.op(Kind::kConvert, {b.arg({Elem::kBf16, {1024}})}, type);
  std::vector<Value*> others;
  for (int i = 0; i < 12; ++i) {
    others.push_back(b.op(Kind::kMultiply, {wide, b.arg(type)}, type));
  }
  Value* joined = b.op(Kind::kConcatenate, others, f32({12 * 1024}), DimAttrs{0});
  Module& m = b.done({joined, b.op(Kind::kNegate, {wide}, type)});
  const spec::BoardParams board = spec::load_board("v2_8");
  const exe::ExecutableT e = generate(m, board, options_of(Style::kXla2019));
  const auto args = random_arguments(m, RunOptions{});
  const Outcome want =
      run_executable(m, generate(m, board, options_of(Style::kBest)), board, args, 0);
  EXPECT_EQ(run_executable(m, e, board, args, 0).results[0][0].data, want.results[0][0].data);
}

// 3 x 3 taps, 64 features in and out, at images of 12 x 12.
Module& convolution(GraphBuilder& b) {
  const Type x{Elem::kBf16, {3, 12, 12, 64}}, w{Elem::kBf16, {3, 3, 64, 64}};
  ConvAttrs a;
  a.window_stride = a.lhs_dilation = a.rhs_dilation = a.pad_low = a.pad_high = {1, 1};
  a.window_reversal = {false, false};
  a.input_feature = a.output_feature = 3;
  a.input_spatial = a.output_spatial = {1, 2};
  a.kernel_spatial = {0, 1};
  a.kernel_input_feature = 2;
  a.kernel_output_feature = 3;
  Module& m = b.done({b.op(Kind::kConvolution, {b.arg(x), b.arg(w)}, x, a)});
  legalize(m);
  m.number_ops();
  verify(m);
  return m;
}

// Products that one command of the program sums for an element and a tap.
uint32_t longest_run(const Module& m, const spec::BoardParams& board, bool span_taps) {
  KernelContext context{m, board};
  context.tiles_span_taps = span_taps;
  KernelProgram program = run_kernel_passes(context);
  uint32_t longest = 0;
  for (const auto& item : emit_program(m, program, board, {0}).listing.items) {
    const auto* command = std::get_if<Command>(&item);
    const auto* matmul =
        command == nullptr ? nullptr : std::get_if<spec::MatmulCommand>(&command->body);
    if (matmul != nullptr) {
      longest = std::max(longest, matmul->k[0] * matmul->k[1] * matmul->k[2]);
    }
  }
  return longest;
}

// Tiles that span taps are fewer, and the sum is the same for every kind of value: large ones and
// sums below the normal numbers, zeros of both signs, infinities.
TEST(Style, Xla2019LetsTilesSpanTapsAndSumsTheSame) {
  const spec::BoardParams board = spec::load_board("v2_8");
  GraphBuilder b1, b2;
  Module &best = convolution(b1), &xla = convolution(b2);
  const exe::ExecutableT e = generate(xla, board, options_of(Style::kXla2019));
  const exe::ExecutableT plain = generate(best, board, options_of(Style::kBest));
  EXPECT_EQ(longest_run(best, board, false), 3u * 64);
  EXPECT_EQ(longest_run(xla, board, true), 9u * 64);
  for (const double scale : {2.0, 1e-19, 1e30}) {
    RunOptions o;
    o.low = -scale;
    o.high = scale;
    auto args = random_arguments(best, o);
    for (size_t i = 0; i + 2 < args[0][0].data.size(); i += 74) {  // every 37th value
      const uint16_t bits = i % 4 == 0 ? 0x8000 : i % 592 == 2 && scale > 1e29 ? 0xff80 : 0;
      std::memcpy(args[0][0].data.data() + i, &bits, sizeof(bits));
    }
    const Outcome want = run_executable(best, plain, board, args, 0);
    for (const uint32_t seed : {0u, 5u}) {
      EXPECT_EQ(run_executable(xla, e, board, args, seed).results[0][0].data,
                want.results[0][0].data)
          << scale;
    }
  }
}

// Largest error of a product of f32 that is compiled in `style`: of `rows` x 64 and 64 x 48.
double error_of_product(int64_t rows, Style style) {
  GraphBuilder b;
  DotAttrs attrs;
  attrs.lhs_contract = {1};
  attrs.rhs_contract = {0};
  Value* x = b.arg(f32({rows, 64}));
  Value* w = b.arg(f32({64, 48}));
  Module& module = b.done({b.op(Kind::kDotGeneral, {x, w}, f32({rows, 48}), attrs)});
  const auto args = random_arguments(module, RunOptions{});
  const spec::BoardParams board = spec::load_board("v3_8");
  Compiled made = compile(std::move(module), board, options_of(style));
  const Outcome got = run_executable(made.report.graph, std::move(made.executable), board, args, 0);
  double worst = 0;
  for (int64_t i = 0; i < rows * 48; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < 64; ++k) {
      sum += element(args[0][0], i / 48 * 64 + k) * element(args[0][1], k * 48 + i % 48);
    }
    worst = std::max(worst, std::abs(sum - element(got.results[0][0], i)));
  }
  return worst;
}

TEST(Style, Xla2023ComputesProductsWithAVectorInF32) {
  constexpr double kExact = 1e-4, kRounded = 1e-3;  // of sums of 64 products of up to 4
  EXPECT_LT(error_of_product(1, Style::kXla2023), kExact);
  EXPECT_GT(error_of_product(2, Style::kXla2023), kRounded);
  EXPECT_GT(error_of_product(1, Style::kBest), kRounded);
}

TEST(Style, Xla2019ShardsUpdatesOnlyIfAsked) {
  TwoLayers net(32, 512);
  for (size_t i = 0; i < 6; ++i) {  // results of the second layer come first
    net.module().main->args[i].alias_result = static_cast<int>((i + 3) % 6);
  }
  const spec::BoardParams board = spec::load_board("v2_8");
  CompileOptions options = options_of(Style::kXla2019);
  options.update_sharding = UpdateSharding::kAuto;
  EXPECT_EQ(generate(net.module(), board, options).sharded_update_bytes, 0u);
  options.update_sharding = UpdateSharding::kOn;
  EXPECT_GT(generate(net.module(), board, options).sharded_update_bytes, 0u);
}

}  // namespace
}  // namespace tpu::compiler::test
