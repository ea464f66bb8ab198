// Transfers with the host's memory: where they start and where they are finished.
#include "kernel/memory_transfers.hpp"

#include <gtest/gtest.h>

#include <string>

#include "board/board_loader.hpp"
#include "graph_builder.hpp"
#include "kernel/kernel_passes.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;

const Type kLarge = f32({2048, 1024});  // 8 MiB: half a million cycles of PCIe
const Type kSmall = f32({64, 64});

void send(GraphBuilder& b, Value* v, int64_t channel, bool memory = true) {
  b.region().append(Kind::kSend, {v}, {}, HostAttrs{channel, -1, v->type, memory, false},
                    unknown_loc());
}

Value* receive(GraphBuilder& b, const Type& type, int64_t channel, bool memory = true) {
  return b.region()
      .append(Kind::kRecv, {}, {type}, HostAttrs{channel, -1, type, memory, false}, unknown_loc())
      ->result();
}

// About a million cycles.
Value* dot(GraphBuilder& b, Value* x, Value* y) {
  DotAttrs attrs;
  attrs.lhs_contract = {1};
  attrs.rhs_contract = {0};
  Value* wide = b.op(Kind::kDotGeneral, {x, y}, f32({2048, 8192}), attrs);
  return b.op(Kind::kDotGeneral, {wide, b.arg(f32({8192, 1024}))}, kLarge, attrs);
}

// D: contraction, S and R: a whole transfer to and from the host, s and r: its start, f: its
// finish, by channel.
std::string order_of(const Module& m, bool beside = true) {
  const spec::BoardParams board = spec::load_board("v3_8");
  KernelContext context{m, board};
  context.host_beside = beside;
  std::string order;
  for (const Kernel& k : run_kernel_passes(context).kernels) {
    if (k.kind == KernelClass::kContract) {
      order += "D ";
    } else if (k.kind == KernelClass::kHost) {
      const bool to_host = k.ops[0]->kind == Kind::kSend;
      order += k.host().stage == HostStage::kFinish  ? "f"
               : k.host().stage == HostStage::kStart ? (to_host ? "s" : "r")
                                                     : (to_host ? "S" : "R");
      order += std::to_string(k.ops[0]->as<HostAttrs>().channel) + " ";
    }
  }
  return order;
}

// It starts behind the kernel that follows, which hides the call, and the way back begins as late
// as it can.
TEST(HostTransfers, RunBesideProducts) {
  GraphBuilder b;
  Value* w = b.arg(f32({1024, 8192}));
  Value* x = dot(b, b.arg(kLarge), w);
  send(b, x, 1);
  Value* back = receive(b, kLarge, 1);
  for (int layer = 0; layer < 4; ++layer) {
    x = dot(b, x, w);
  }
  Module& m = b.done({x, b.op(Kind::kAdd, {x, back}, kLarge)});
  EXPECT_EQ(order_of(m, false), "D D S1 R1 D D D D D D D D ");
  EXPECT_EQ(order_of(m), "D D D s1 D D f1 D D r1 D D f1 D ");
}

TEST(HostTransfers, StayWholeWhereTheyAreShortOrOfAHandler) {
  GraphBuilder b;
  Value* x = b.arg(kLarge);
  send(b, b.op(Kind::kTanh, {b.arg(kSmall)}, kSmall), 1);
  send(b, x, 2, false);
  Value* y = receive(b, kLarge, 3, false);
  EXPECT_EQ(order_of(b.done({b.op(Kind::kAdd, {x, y}, kLarge)})), "S1 S2 R3 ");
}

// What travels has memory: four are under way at most.
TEST(HostTransfers, FewAreUnderWay) {
  GraphBuilder b;
  Value* x = b.arg(kLarge);
  for (int channel = 1; channel <= 6; ++channel) {
    x = b.op(Kind::kTanh, {x}, kLarge);
    send(b, x, channel);
  }
  Value* sum = x;
  for (int channel = 1; channel <= 6; ++channel) {
    sum = b.op(Kind::kTanh, {b.op(Kind::kAdd, {sum, receive(b, kLarge, channel)}, kLarge)}, kLarge);
  }
  const std::string order = order_of(b.done({sum}));
  int sent = 0, received = 0;
  std::string known;
  for (size_t i = 0; i + 1 < order.size(); i += 3) {
    const std::string start(1, order[i + 1]);
    sent += order[i] == 's' ? 1 : 0;
    received += order[i] == 'r' ? 1 : 0;
    if (order[i] == 'f') {
      (known.find("r" + start) == std::string::npos ? sent : received) -= 1;
    }
    if (order[i] == 'r') {
      EXPECT_NE(known.find("f" + start), std::string::npos)
          << "comes before it is there: " << order;
    }
    known += order.substr(i, 2);
    EXPECT_LE(sent, 4) << order;
    EXPECT_LE(received, 4) << order;
  }
  EXPECT_EQ(sent + received, 0) << order;
  EXPECT_EQ(order.size(), size_t{3 * 24}) << order;
}

}  // namespace
}  // namespace tpu::compiler
