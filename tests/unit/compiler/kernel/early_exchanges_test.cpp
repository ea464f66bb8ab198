// Exchanges go in front of kernels that do not make their operand, additions of what arrives behind
// others, and neither goes further than the exchange takes.
#include "kernel/early_exchanges.hpp"

#include <gtest/gtest.h>

#include <string>

#include "board/board_loader.hpp"
#include "graph_builder.hpp"
#include "kernel/kernel_passes.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;

constexpr int64_t kCores = 8;

Value* dot(GraphBuilder& b, Value* x, Value* y) {
  DotAttrs attrs;
  attrs.lhs_contract = {1};
  attrs.rhs_contract = {0};
  return b.op(Kind::kDotGeneral, {x, y}, f32({x->type.dims[0], y->type.dims[1]}), attrs);
}

CollectiveAttrs all_cores(int64_t dim) {
  CollectiveAttrs attrs;
  attrs.groups = {{0, 1, 2, 3, 4, 5, 6, 7}};
  attrs.dim = dim;
  return attrs;
}

Value* gather(GraphBuilder& b, Value* x) {
  Type type = x->type;
  type.dims[0] *= kCores;
  return b.op(Kind::kAllGather, {x}, type, all_cores(0));
}

PermuteAttrs ring() {
  PermuteAttrs attrs;
  for (int64_t core = 0; core < kCores; ++core) {
    attrs.pairs.push_back({core, (core + 1) % kCores});
  }
  return attrs;
}

// D: contraction, L: loop, E: exchange; copies of results are left out.
std::string order_of(const Module& m, bool early = true) {
  const spec::BoardParams board = spec::load_board("v3_8");
  KernelContext context{m, board};
  context.early_exchanges = early;
  std::string order;
  for (const Kernel& k : run_kernel_passes(context).kernels) {
    order += k.kind == KernelClass::kContract   ? "D"
             : k.kind == KernelClass::kLoop     ? "L"
             : k.kind == KernelClass::kExchange ? "E"
                                                : "";
  }
  return order;
}

TEST(EarlyExchanges, GoInFrontOfProducts) {
  GraphBuilder b(kCores);
  Value* x = b.arg(f32({1024, 1024}));
  Value* k = b.arg(f32({256, 1024}));
  Value* y = dot(b, x, x);
  Value* there = b.op(Kind::kCollectivePermute, {k}, k->type, ring());
  Module& m = b.done({y, dot(b, there, x)});
  EXPECT_EQ(order_of(m, false), "DED");
  EXPECT_EQ(order_of(m), "EDD");
}

TEST(EarlyExchanges, StayBehindWhatMakesTheirOperand) {
  GraphBuilder b(kCores);
  Value* x = b.arg(f32({1024, 1024}));
  Value* y = dot(b, x, x);
  Value* there = b.op(Kind::kCollectivePermute, {y}, y->type, ring());
  EXPECT_EQ(order_of(b.done({dot(b, there, x)})), "DED");
}

// As in FSDP: the weights of a layer come beside the products of the layer in front of it, not all
// of them at the start.
TEST(EarlyExchanges, PassOneReaderOfAnother) {
  GraphBuilder b(kCores);
  Value* x = b.arg(f32({128, 1024}));
  for (int layer = 0; layer < 4; ++layer) {
    x = dot(b, x, gather(b, b.arg(f32({128, 1024}))));
  }
  Module& m = b.done({x});
  EXPECT_EQ(order_of(m, false), "EDEDEDED");
  EXPECT_EQ(order_of(m), "EEDEDEDD");
}

// As in the backward pass of FSDP: weights come while gradients of other layers are added.
TEST(EarlyExchanges, GathersPassAdditionsOfWhatOthersBring) {
  GraphBuilder b(kCores);
  Value* x = b.arg(f32({1024, 1024}));
  CollectiveAttrs split = all_cores(0);
  split.split_count = kCores;
  Value* sum = dot(b, x, x);
  for (int i = 0; i < 2; ++i) {
    sum = b.op(Kind::kAdd, {sum, b.op(Kind::kAllToAll, {sum}, sum->type, split)}, sum->type);
  }
  Module& m = b.done({dot(b, sum, gather(b, b.arg(f32({128, 1024}))))});
  EXPECT_EQ(order_of(m, false), "DELELED");
  EXPECT_EQ(order_of(m), "DEELELD");
}

// The weights of a layer that does not need the tokens of the experts.
TEST(EarlyExchanges, PassExchangesThatWaitForProducts) {
  GraphBuilder b(kCores);
  Value* x = b.arg(f32({1024, 1024}));
  Value* y = dot(b, x, x);
  Value* there = b.op(Kind::kCollectivePermute, {y}, y->type, ring());
  Value* w = gather(b, b.arg(f32({128, 1024})));
  Module& m = b.done({dot(b, there, x), dot(b, x, w)});
  EXPECT_EQ(order_of(m, false), "DEEDD");
  EXPECT_EQ(order_of(m), "EDEDD");
}

TEST(EarlyExchanges, GoNoFurtherThanTheyTake) {
  GraphBuilder b(kCores);
  Value* x = b.arg(f32({1024, 1024}));
  Value* small = b.arg(f32({64, 1024}));
  Value* y = dot(b, dot(b, x, x), x);
  Value* there = b.op(Kind::kCollectivePermute, {small}, small->type, ring());
  EXPECT_EQ(order_of(b.done({y, dot(b, there, x)})), "DEDD");
}

// As the gradient of a weight of `n` times `n`: the additions of a reduce-scatter, and products
// that do not need them.
Module& scattered_gradient(GraphBuilder& b, int64_t n) {
  Value* x = b.arg(f32({n, n}));
  CollectiveAttrs split = all_cores(0);
  split.split_count = kCores;
  Value* y = dot(b, x, x);
  Value* pieces = b.op(Kind::kAllToAll, {y}, y->type, split);
  Value* sum = b.op(Kind::kAdd, {pieces, pieces}, y->type);
  Value* z = dot(b, dot(b, y, x), y);
  return b.done({sum, z});
}

TEST(EarlyExchanges, TheirAdditionsGoBehindProducts) {
  GraphBuilder b(kCores);
  Module& m = scattered_gradient(b, 1024);
  EXPECT_EQ(order_of(m, false), "DELDD");
  EXPECT_EQ(order_of(m), "DEDDL");
}

// More than a sixteenth of HBM: behind the products the result would take its memory for longer.
TEST(EarlyExchanges, AdditionsOfLargeResultsStay) {
  GraphBuilder b(kCores);
  Module& m = scattered_gradient(b, 17408);
  EXPECT_EQ(order_of(m, false), "DELDD");
  EXPECT_EQ(order_of(m), "DELDD");
}

}  // namespace
}  // namespace tpu::compiler
