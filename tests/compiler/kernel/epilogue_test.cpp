// Loop kernels behind a contraction that work on its blocks: which ones join it, what then stays
// out of memory, and that the bits stay.
#include "kernel/epilogue.hpp"

#include <algorithm>

#include "../../unit/compiler/control_builder.hpp"
#include "../run_compiled.hpp"
#include "kernel/kernel_passes.hpp"
#include "program/estimate.hpp"

namespace tpu::compiler::test {
namespace {

constexpr int64_t kHeads = 4, kTokens = 256, kWide = 64;
// The scores take 512 KiB in bf16. With this much VMEM, values above 256 KiB pass through HBM.
const std::vector<std::string> kSmall = {"core.vmem_kib=1024"};

Type scores(Elem e = Elem::kBf16) { return {e, {kHeads, kTokens, kTokens}}; }
Type rows(Elem e = Elem::kBf16) { return {e, {kHeads, kTokens}}; }

Value* products(GraphBuilder& b) {
  Value* q = b.arg({Elem::kBf16, {kHeads, kTokens, kWide}});
  Value* k = b.arg({Elem::kBf16, {kHeads, kTokens, kWide}});
  DotAttrs dot;
  dot.lhs_batch = dot.rhs_batch = {0};
  dot.lhs_contract = dot.rhs_contract = {2};
  return b.op(Kind::kDotGeneral, {q, k}, scores(), dot);
}

Value* along_rows(GraphBuilder& b, Value* x, Elem e = Elem::kBf16) {
  return b.op(Kind::kBroadcastInDim, {x}, scores(e), DimsAttrs{{0, 1}});
}

Value* sum_of_rows(GraphBuilder& b, Value* x) {
  Value* wide = b.op(Kind::kConvert, {x}, scores(Elem::kF32));
  Value* sum = b.reduce(wide, b.constant(f32({}), 0), {2}, rows(Elem::kF32), Kind::kAdd);
  return b.op(Kind::kConvert, {sum}, rows());
}

Value* softmax(GraphBuilder& b, Value* x) {
  Value* most = b.reduce(x, b.constant({Elem::kBf16, {}}, -1e30), {2}, rows(), Kind::kMaximum);
  Value* e =
      b.op(Kind::kExp, {b.op(Kind::kSubtract, {x, along_rows(b, most)}, scores())}, scores());
  return b.op(Kind::kDivide, {e, along_rows(b, sum_of_rows(b, e))}, scores());
}

// Of the contractions: epilogues and values written.
std::string contractions(const KernelProgram& program) {
  std::string text;
  for (const Kernel& k : program.kernels) {
    if (k.kind == KernelClass::kContract) {
      text += (text.empty() ? "" : ", ") + std::to_string(k.contract().after.size()) + " loops";
      for (const Value* v : k.writes) {
        text += ' ' + std::string(kind_name(v->def->kind));
      }
    }
  }
  return text;
}

KernelProgram kernels(const Module& module, const std::vector<std::string>& overrides = kSmall) {
  return make_kernels(module, spec::load_board("v3_8", overrides));
}

int64_t hbm_bytes(const Outcome& out) {
  return static_cast<int64_t>(out.executable.hbm_read_bytes + out.executable.hbm_written_bytes);
}

TEST(Epilogue, SoftmaxWritesProbabilitiesAlone) {
  GraphBuilder b;
  Value* mask = b.arg({Elem::kBf16, {kTokens, kTokens}});
  Value* dropped = b.op(Kind::kBroadcastInDim, {mask}, scores(), DimsAttrs{{1, 2}});
  Value* p = b.op(Kind::kMultiply, {softmax(b, products(b)), dropped}, scores());
  Module& m = b.done({p});
  EXPECT_EQ(contractions(kernels(m)), "4 loops multiply");
  RunOptions o;
  o.overrides = kSmall;
  const Outcome got = check_graph(m, o);
  const int64_t masks = kHeads * mask->type.bytes();
  const int64_t once = scores().bytes() + masks + 2 * kHeads * kTokens * kWide * 2;
  EXPECT_LT(hbm_bytes(got), once + once / 4);
  // Where a block is a whole head, each slot takes the mask once.
  o.overrides = {"core.vmem_kib=1920"};
  EXPECT_LE(hbm_bytes(check_graph(m, o)), once - (kHeads - 2) * mask->type.bytes());
}

// The loads of several heads are in flight together.
TEST(Epilogue, BatchesHideTheLatencyOfTheirLoads) {
  constexpr int64_t kMany = 64;
  GraphBuilder b;
  Value* p = b.arg({Elem::kBf16, {kMany, kTokens, kTokens}});
  Value* v = b.arg({Elem::kBf16, {kMany, kTokens, kWide}});
  DotAttrs dot;
  dot.lhs_batch = dot.rhs_batch = {0};
  dot.lhs_contract = {2};
  dot.rhs_contract = {1};
  const Type out{Elem::kBf16, {kMany, kTokens, kWide}};
  Module& m = b.done({b.op(Kind::kDotGeneral, {p, v}, out, dot)});
  RunOptions o;
  o.overrides = kSmall;
  const Outcome got = check_graph(m, o);
  const double hbm = static_cast<double>(p->type.bytes() + v->type.bytes() + out.bytes()) /
                     hbm_bytes_per_cycle(spec::load_board("v3_8", {}));
  EXPECT_LT(static_cast<double>(got.executable.estimated_cycles), 1.15 * hbm);
}

// p[heads][rows][columns] * v[heads][columns][wide], or the transposed p.
Value* times_values(GraphBuilder& b, Value* p, bool transposed) {
  Value* v = b.arg({Elem::kBf16, {p->type.dims[0], kTokens, kWide}});
  DotAttrs dot;
  dot.lhs_batch = dot.rhs_batch = {0};
  dot.lhs_contract = {transposed ? 1 : 2};
  dot.rhs_contract = {1};
  return b.op(Kind::kDotGeneral, {p, v}, {Elem::kBf16, {p->type.dims[0], kTokens, kWide}}, dot);
}

// The first product takes the probabilities from VMEM: they are written to HBM, and read once.
TEST(Epilogue, AProductTakesProbabilitiesFromVmem) {
  for (const Style style : {Style::kBest, Style::kXla2019}) {
    GraphBuilder b;
    Value* p = softmax(b, products(b));
    Module& m = b.done({times_values(b, p, false), times_values(b, p, true)});
    RunOptions o;
    o.overrides = {"core.vmem_kib=1920"};
    o.style = style;
    const int64_t others = 6 * kHeads * kTokens * kWide * 2;
    EXPECT_LT(hbm_bytes(check_graph(m, o)), 2 * scores().bytes() + others + others / 8);
  }
}

// A loop over all elements is one loop, but for the style that goes by columns.
TEST(Epilogue, FlatLoopsAreSplitWhereTheyGoByColumnsAlone) {
  for (const bool by_columns : {false, true}) {
    GraphBuilder b;
    DotAttrs dot;
    dot.lhs_contract = {1};
    dot.rhs_contract = {0};
    Value* x = b.arg(f32({64, 32}));
    Value* y = b.op(Kind::kDotGeneral, {x, b.arg(f32({32, 128}))}, f32({64, 128}), dot);
    const Module& m = b.done({b.op(Kind::kExp, {y}, y->type)});
    const spec::BoardParams board = spec::load_board("v3_8", kSmall);
    KernelContext context{m, board, 512 * 1024};
    context.epilogues.by_columns = by_columns;
    const KernelProgram program = run_kernel_passes(context);
    const auto found = std::ranges::find(program.kernels, KernelClass::kContract, &Kernel::kind);
    ASSERT_NE(found, program.kernels.end());
    ASSERT_EQ(found->contract().after.size(), 1u);
    EXPECT_EQ(found->contract().after[0]->loop().nest.loops.size(), by_columns ? 2u : 1u);
  }
}

// What the second one multiplies is made by the first one, or is not there in time.
TEST(Epilogue, ProductsWaitForTheirOtherOperand) {
  GraphBuilder b;
  Value* p = softmax(b, products(b));
  DotAttrs dot;
  dot.lhs_batch = dot.rhs_batch = {0};
  dot.lhs_contract = {2};
  dot.rhs_contract = {1};
  Value* one = times_values(b, p, false);
  Module& m =
      b.done({b.op(Kind::kDotGeneral, {p, one}, {Elem::kBf16, {kHeads, kTokens, kWide}}, dot),
              b.op(Kind::kDotGeneral, {p, p}, scores(), dot)});
  RunOptions o;
  o.overrides = {"core.vmem_kib=1920"};
  check_graph(m, o);
}

TEST(Epilogue, ChainsInStyleXla2019) {
  GraphBuilder b;
  Module& m = b.done({softmax(b, products(b))});
  RunOptions o;
  o.overrides = kSmall;
  o.style = Style::kXla2019;
  check_graph(m, o);
}

// Values that stay in VMEM from kernel to kernel gain nothing.
TEST(Epilogue, KernelsOfValuesThatStayInVmemAreApart) {
  GraphBuilder b;
  Module& m = b.done({softmax(b, products(b))});
  EXPECT_EQ(contractions(kernels(m, {})).substr(0, 7), "1 loops");
}

TEST(Epilogue, WhatOthersReadIsStoredToo) {
  GraphBuilder b;
  Value* x = products(b);
  Value* p = softmax(b, x);
  Value* late = b.op(Kind::kMultiply, {p, b.arg(scores())}, scores());
  Module& m = b.done({late, p, sum_of_rows(b, x)});
  RunOptions o;
  o.overrides = kSmall;
  check_graph(m, o);
}

// d = dp * p; ds = (dp - sum(d)) * p: the products never reach memory, and p comes once.
TEST(Epilogue, GradientOfSoftmax) {
  GraphBuilder b;
  Value* dp = products(b);
  Value* p = b.arg(scores());
  Value* d = b.op(Kind::kMultiply, {dp, p}, scores());
  Value* centred = b.op(Kind::kSubtract, {dp, along_rows(b, sum_of_rows(b, d))}, scores());
  Value* ds = b.op(Kind::kMultiply, {centred, p}, scores());
  Module& m = b.done({b.op(Kind::kConvert, {ds}, scores(Elem::kF32))});
  EXPECT_EQ(contractions(kernels(m)), "3 loops convert");
  RunOptions o;
  o.overrides = kSmall;
  const Outcome got = check_graph(m, o);
  const int64_t once = 3 * scores().bytes() + 2 * kHeads * kTokens * kWide * 2;
  EXPECT_LT(hbm_bytes(got), once + once / 4);
}

// Columns of the next kernel are rows of the blocks.
TEST(Epilogue, TransposedReadersStayApart) {
  GraphBuilder b;
  Value* p = softmax(b, products(b));
  Value* turned = b.op(Kind::kTranspose, {p}, scores(), DimsAttrs{{0, 2, 1}});
  Module& m = b.done({b.op(Kind::kAdd, {turned, b.arg(scores())}, scores())});
  EXPECT_EQ(contractions(kernels(m)), "4 loops divide");
  RunOptions o;
  o.overrides = kSmall;
  check_graph(m, o);
}

// Positions of T5: heads come last where the table is looked up. A block of one head would read
// single elements, each in a granule of its own.
TEST(Epilogue, ATransposedBiasOfAllExamplesIsCopiedOnce) {
  constexpr int64_t kExamples = 3, kMany = 16, kKeys = 128;
  const Type type{Elem::kBf16, {kExamples, kMany, kTokens, kKeys}};
  GraphBuilder b;
  Value* q = b.arg({Elem::kBf16, {kExamples, kMany, kTokens, kWide}});
  Value* k = b.arg({Elem::kBf16, {kExamples, kMany, kKeys, kWide}});
  Value* bias = b.arg({Elem::kBf16, {kTokens, kKeys, kMany}});
  DotAttrs dot;
  dot.lhs_batch = dot.rhs_batch = {0, 1};
  dot.lhs_contract = dot.rhs_contract = {3};
  Value* by_head =
      b.op(Kind::kTranspose, {bias}, {Elem::kBf16, {kMany, kTokens, kKeys}}, DimsAttrs{{2, 0, 1}});
  Value* of_all = b.op(Kind::kBroadcastInDim, {by_head}, type, DimsAttrs{{1, 2, 3}});
  Module& m =
      b.done({b.op(Kind::kAdd, {b.op(Kind::kDotGeneral, {q, k}, type, dot), of_all}, type)});
  EXPECT_EQ(contractions(kernels(m)), "1 loops add");
  const KernelProgram scarce = form_kernels(m, {.late_constants = true});
  EXPECT_EQ(scarce.kernels.size() + 1, form_kernels(m, {}).kernels.size());  // no copy
  RunOptions o;
  o.overrides = kSmall;
  const int64_t all =
      q->type.bytes() + k->type.bytes() + type.bytes() + kExamples * bias->type.bytes();
  EXPECT_LT(hbm_bytes(check_graph(m, o)), 2 * all);
}

// Loops of elements take tiles of both dimensions.
TEST(Epilogue, ATransposedOperandOfALoopIsNotCopied) {
  GraphBuilder b;
  const Type type{Elem::kF32, {4, 512, 512}};
  Value* x = b.arg({Elem::kF32, {512, 512}});
  Value* s = b.arg(type);
  Value* turned = b.op(Kind::kTranspose, {x}, x->type, DimsAttrs{{1, 0}});
  Value* all = b.op(Kind::kBroadcastInDim, {turned}, type, DimsAttrs{{1, 2}});
  Module& m = b.done({b.op(Kind::kMultiply, {b.op(Kind::kExp, {s}, type), all}, type)});
  EXPECT_EQ(kernels(m).kernels.size(), 2u);  // the loop, and its result
}

TEST(Epilogue, LeavesFromTheLastOneOn) {
  GraphBuilder b;
  Module& m = b.done({softmax(b, products(b))});
  KernelProgram program = kernels(m);
  ASSERT_EQ(contractions(program), "4 loops divide");
  const size_t count = program.kernels.size();
  ASSERT_TRUE(split_epilogue(program, program.kernels.front().order));
  EXPECT_EQ(contractions(program).substr(0, 7), "3 loops");
  ASSERT_TRUE(split_epilogue(program, program.kernels.front().order));
  EXPECT_EQ(contractions(program).substr(0, 7), "2 loops");
  ASSERT_TRUE(split_epilogue(program, program.kernels.front().order));
  EXPECT_EQ(contractions(program).substr(0, 7), "1 loops");
  ASSERT_TRUE(split_epilogue(program, program.kernels.front().order));
  EXPECT_EQ(contractions(program), "0 loops dot_general");
  EXPECT_FALSE(split_epilogue(program, program.kernels.front().order));
  EXPECT_EQ(program.kernels.size(), count + 4);
}

}  // namespace
}  // namespace tpu::compiler::test
