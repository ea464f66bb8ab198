// Host calls through all passes to the executable: none is moved, merged or removed.
#include <gtest/gtest.h>

#include "board/board_loader.hpp"
#include "control_builder.hpp"
#include "entry/codegen.hpp"
#include "entry/pipeline.hpp"
#include "ir/verify.hpp"
#include "passes/pass_manager.hpp"

namespace tpu::compiler::test {
namespace {

Op* send(Region& region, Value* v, int64_t channel, int64_t partition = -1) {
  return region.append(Kind::kSend, {v}, {}, HostAttrs{channel, partition, v->type}, unknown_loc());
}

Value* recv(Region& region, const Type& type, int64_t channel, int64_t partition = -1) {
  return region.append(Kind::kRecv, {}, {type}, HostAttrs{channel, partition, type}, unknown_loc())
      ->result();
}

exe::ExecutableT compiled(Module& m) {
  run_passes(m, compile_passes());
  return generate(m, spec::load_board("v3_8", std::vector<std::string>{}), {});
}

std::vector<int64_t> channels(const exe::ExecutableT& e) {
  std::vector<int64_t> out;
  for (const auto& call : e.host_calls) {
    out.push_back(call->channel);
  }
  return out;
}

TEST(HostCalls, KeepTheirOrderAndNumber) {
  GraphBuilder b;
  Value* x = b.arg(f32({4}));
  send(b.region(), x, 1);
  send(b.region(), b.constant(f32({2, 3}), 5), 2);
  recv(b.region(), f32({}), 3);  // nobody uses it
  send(b.region(), x, 1);        // the same again
  Value* y = recv(b.region(), f32({4}), 4);
  send(b.region(), b.op(Kind::kAdd, {x, y}, f32({4})), 5);
  const exe::ExecutableT e = compiled(b.done({y}));
  EXPECT_EQ(channels(e), (std::vector<int64_t>{1, 2, 3, 1, 4, 5}));
  EXPECT_TRUE(e.host_calls[0]->to_host);
  EXPECT_FALSE(e.host_calls[2]->to_host);
  EXPECT_EQ(e.host_calls[1]->dims, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(e.ops.at(e.host_calls[4]->op)->name, "recv");
}

// Sums that travel together come late, and what waits for them does not fall behind.
TEST(HostCalls, KeepTheirOrderAroundSumsOverCores) {
  GraphBuilder b(2);
  Value* x = b.arg(f32({4}));
  const auto sum = [&](Value* v) {
    return b.with_body(b.op(Kind::kAllReduce, {v}, f32({4}), CollectiveAttrs{{{0, 1}}, 1}),
                       Kind::kAdd);
  };
  Value* first = sum(x);
  send(b.region(), first, 1);
  Value* second = sum(b.op(Kind::kMultiply, {x, x}, f32({4})));
  send(b.region(), x, 2);
  EXPECT_EQ(channels(compiled(b.done({second}))), (std::vector<int64_t>{1, 2}));
}

TEST(HostCalls, OfAllKindsOfElements) {
  GraphBuilder b;
  for (const Elem elem : {Elem::kI1, Elem::kU8, Elem::kBf16, Elem::kI64, Elem::kU64}) {
    send(b.region(), recv(b.region(), {elem, {3}}, 1), 2);
  }
  const exe::ExecutableT e = compiled(b.done({}));
  ASSERT_EQ(e.host_calls.size(), 10u);
  EXPECT_EQ(e.host_calls[6]->elem, exe::Elem::i64);
  EXPECT_EQ(e.host_calls[9]->elem, exe::Elem::ui64);
  EXPECT_EQ(e.host_calls[9]->dims, (std::vector<int64_t>{3}));
}

// A branch that only calls the host stays.
TEST(HostCalls, KeepTheBranchesThatHoldThem) {
  GraphBuilder b;
  Value* x = b.arg(f32({4}));
  Value* p = b.arg(i1({}));
  Op* branch = b.region().append(Kind::kIf, {p}, {}, NoAttrs{}, unknown_loc());
  for (const int64_t channel : {1, 2}) {
    Region* arm = branch->add_region();
    send(*arm, x, channel);
    arm->append(Kind::kReturn, {}, {}, NoAttrs{}, unknown_loc());
  }
  const exe::ExecutableT e = compiled(b.done({x}));
  EXPECT_EQ(e.host_calls.size(), 2u);
}

// while (i < trips) with a call in one of its regions.
exe::ExecutableT loop_with_call(int trips, bool in_condition) {
  GraphBuilder b;
  Value* x = b.arg(f32({4}));
  RegionBuilder r(b.region());
  r.loop(
      {r.number(i32({}), 0)},
      [&](RegionBuilder& in, const Values& a) {
        if (in_condition) {
          in.op_without_result(Kind::kSend, {a[0]}, HostAttrs{1, -1, a[0]->type});
        }
        return Values{in.compare(CompareDirection::kLt, a[0], in.number(i32({}), trips))};
      },
      [&](RegionBuilder& in, const Values& a) {
        if (!in_condition) {
          in.op_without_result(Kind::kSend, {a[0]}, HostAttrs{1, -1, a[0]->type});
        }
        return Values{in.add(a[0], in.number(i32({}), 1))};
      });
  return compiled(b.done({x}));
}

TEST(HostCalls, KeepTheLoopThatHoldsThem) {
  for (const int trips : {3, 20}) {
    EXPECT_EQ(loop_with_call(trips, false).host_calls.size(), 1u) << trips;
  }
  EXPECT_EQ(loop_with_call(0, false).host_calls.size(), 0u);
}

// The condition runs once more than the body, also where the count is known, and if it is zero.
TEST(HostCalls, KeepTheConditionThatHoldsThem) {
  for (const int trips : {0, 3, 20}) {
    EXPECT_EQ(loop_with_call(trips, true).host_calls.size(), 1u) << trips;
  }
}

TEST(HostCalls, ResultForAllNeedsAConditionThatIsTheSameEverywhere) {
  GraphBuilder b(2);
  Value* number = b.op(Kind::kPartitionId, {}, {Elem::kU32, {}});
  Value* zero = b.op(Kind::kConstant, {}, {Elem::kU32, {}},
                     ConstantAttrs{make_splat_int({Elem::kU32, {}}, 0)});
  Value* p = b.op(Kind::kCompare, {number, zero}, i1({}), CompareAttrs{});
  Op* branch = b.region().append(Kind::kIf, {p}, {f32({})}, NoAttrs{}, unknown_loc());
  for (const int64_t channel : {1, 2}) {
    Region* arm = branch->add_region();
    Value* v = recv(*arm, f32({}), channel, 0);
    arm->append(Kind::kReturn, {v}, {}, NoAttrs{}, unknown_loc());
  }
  Module& m = b.done({branch->result()});
  try {
    compiled(m);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("the same on all cores"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tpu::compiler::test
