// Exchanges that nothing else hides go in pieces beside the product of their array.
#include "kernel/pieced_exchanges.hpp"

#include <gtest/gtest.h>

#include "board/board_loader.hpp"
#include "graph_builder.hpp"
#include "kernel/kernel_passes.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;

constexpr int64_t kCores = 8;

Value* dot(GraphBuilder& b, Value* x, Value* y, int64_t contract_x = 1) {
  DotAttrs attrs;
  attrs.lhs_contract = {contract_x};
  attrs.rhs_contract = {0};
  return b.op(Kind::kDotGeneral, {x, y},
              f32({x->type.dims[static_cast<size_t>(1 - contract_x)], y->type.dims[1]}), attrs);
}

CollectiveAttrs all_cores(int64_t dim) {
  CollectiveAttrs attrs;
  attrs.groups = {{0, 1, 2, 3, 4, 5, 6, 7}};
  attrs.dim = dim;
  return attrs;
}

Value* gather(GraphBuilder& b, Value* x, int64_t dim = 0) {
  Type type = x->type;
  type.dims[static_cast<size_t>(dim)] *= kCores;
  return b.op(Kind::kAllGather, {x}, type, all_cores(dim));
}

// What a reduce-scatter of rows becomes, without its additions.
Value* spread(GraphBuilder& b, Value* x) {
  CollectiveAttrs split = all_cores(0);
  split.split_count = kCores;
  return b.op(Kind::kAllToAll, {x}, x->type, split);
}

KernelProgram kernels(const Module& m, bool pieced = true) {
  static const spec::BoardParams board = spec::load_board("v3_8");
  KernelContext context{m, board};
  context.pieced_exchanges = pieced;
  return run_kernel_passes(context);
}

const Kernel& only(const KernelProgram& program, KernelClass kind) {
  const Kernel* found = nullptr;
  for (const Kernel& k : program.kernels) {
    if (k.kind == kind) {
      EXPECT_EQ(found, nullptr);
      found = &k;
    }
  }
  return *found;
}

TEST(PiecedExchanges, RowsThatArriveBesideTheirProduct) {
  GraphBuilder b(kCores);
  Value* y = gather(b, b.arg(f32({512, 1024})));
  const Module& m = b.done({dot(b, y, b.arg(f32({1024, 1024})))});
  const KernelProgram program = kernels(m);
  const Kernel& exchange = only(program, KernelClass::kExchange);
  EXPECT_EQ(exchange.exchange().pieces, 4);
  EXPECT_TRUE(exchange.exchange().overlaps);
  EXPECT_FALSE(exchange.exchange().leaves_early);
  const auto& order = only(program, KernelClass::kContract).contract().arriving;
  ASSERT_TRUE(order);
  EXPECT_EQ(order->array, y);
  EXPECT_EQ(order->stride, 1024);
  EXPECT_EQ(order->period, 512);
  // Each member's first 128 rows, then its next ones.
  EXPECT_EQ(order->piece_of(0), 0);
  EXPECT_EQ(order->piece_of(127 * 1024 + 1023), 0);
  EXPECT_EQ(order->piece_of(128 * 1024), 1);
  EXPECT_EQ(order->piece_of(512 * 1024), 0);
}

TEST(PiecedExchanges, RowsThatLeaveBesideTheirProduct) {
  GraphBuilder b(kCores);
  Value* y = dot(b, b.arg(f32({4096, 1024})), b.arg(f32({1024, 1024})));
  Value* there = spread(b, y);
  const Module& m = b.done({there});
  const KernelProgram program = kernels(m);
  const Kernel& exchange = only(program, KernelClass::kExchange);
  EXPECT_EQ(exchange.exchange().pieces, 4);
  EXPECT_TRUE(exchange.exchange().leaves_early);
  const ContractPart& part = only(program, KernelClass::kContract).contract();
  ASSERT_TRUE(part.leaving);
  EXPECT_EQ(part.leaving->array, y);
  EXPECT_EQ(part.leaving->period, 512);
  EXPECT_EQ(part.exchanged, there);
}

// The gradient of a weight is a sum over the rows that arrive, in one order: it runs behind the
// product that can begin with some of them.
TEST(PiecedExchanges, TheProductOfRowsComesFirst) {
  GraphBuilder b(kCores);
  Value* x = b.arg(f32({4096, 512}));
  Value* y = gather(b, b.arg(f32({512, 1024})));
  Value* gradient = dot(b, x, y, 0);
  const Module& m = b.done({gradient, dot(b, y, b.arg(f32({1024, 1024})))});
  for (const bool pieced : {false, true}) {
    const KernelProgram program = kernels(m, pieced);
    std::vector<int64_t> depths;
    for (const Kernel& k : program.kernels) {
      if (k.kind == KernelClass::kContract) {
        depths.push_back(Contraction::count(k.contract().dot.k));
      }
    }
    EXPECT_EQ(depths, pieced ? (std::vector<int64_t>{1024, 4096})
                             : (std::vector{int64_t{4096}, int64_t{1024}}));
  }
}

TEST(PiecedExchanges, NotOfSumsOverWhatArrives) {
  GraphBuilder b(kCores);
  Value* y = gather(b, b.arg(f32({512, 1024})));
  const Module& m = b.done({dot(b, b.arg(f32({4096, 1024})), y, 0)});
  EXPECT_EQ(only(kernels(m), KernelClass::kExchange).exchange().pieces, 1);
}

TEST(PiecedExchanges, NotOfFewRows) {
  GraphBuilder b(kCores);
  Value* y = gather(b, b.arg(f32({16, 65536})));
  const Module& m = b.done({dot(b, y, b.arg(f32({65536, 128})))});
  EXPECT_EQ(only(kernels(m), KernelClass::kExchange).exchange().pieces, 1);
}

// As many pieces of as many rows as there are.
TEST(PiecedExchanges, UnevenPiecesHaveAllRows) {
  const PieceOrder order{nullptr, 10, 517, 4};
  EXPECT_EQ(order.begin_of(0), 0);
  EXPECT_EQ(order.begin_of(4), 517);
  for (int64_t row = 0; row < 517; ++row) {
    const int64_t piece = order.piece_of(row * 10);
    EXPECT_GE(row, order.begin_of(piece));
    EXPECT_LT(row, order.begin_of(piece + 1));
    EXPECT_EQ(order.piece_of((row + 517) * 10 + 9), piece);
  }
}

}  // namespace
}  // namespace tpu::compiler
