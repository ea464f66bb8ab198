// Text of small graphs; that a library of StableHLO reads it, and computes the same with it, is
// tests/pjrt/text_test.py.
#include "export/stablehlo_text.hpp"

#include <gtest/gtest.h>

#include "graph_builder.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::i1;

TEST(StablehloText, HasRegionsCollectivesAndLocations) {
  GraphBuilder b(2);
  Value* x = b.arg(f32({2, 3}));
  b.module().main->args[0].name = "w[\"a\"]";
  b.module().main->args[0].alias_result = 0;
  Value* sum = b.with_body(
      b.op(Kind::kAllReduce, {x}, f32({2, 3}), CollectiveAttrs{{{0, 1}}, 0, 0, 0, 0}), Kind::kAdd);
  EXPECT_EQ(
      stablehlo_text(b.done({sum})),
      R"(module @"test" attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32, mhlo.spmd_output_sharding = "{{replicated}}", mhlo.spmd_parameters_shardings = ["{replicated}"]} {
  func.func public @main(%0: tensor<2x3xf32> {tf.aliasing_output = 0 : i32} loc("w[\22a\22]")) -> (tensor<2x3xf32>) {
    %1 = "stablehlo.all_reduce"(%0) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids}> ({
    ^bb0(%2: tensor<f32>, %3: tensor<f32>):
      %4 = "stablehlo.add"(%2, %3) : (tensor<f32>, tensor<f32>) -> (tensor<f32>) loc(#loc1)
      "stablehlo.return"(%4) : (tensor<f32>) -> () loc(#loc2)
    }) : (tensor<2x3xf32>) -> (tensor<2x3xf32>) loc(#loc3)
    "func.return"(%1) : (tensor<2x3xf32>) -> () loc(#loc4)
  }
}
#loc3 = loc("test.py":1:1)
#loc1 = loc("test.py":2:1)
#loc2 = loc("test.py":3:1)
#loc4 = loc("test.py":4:1)
)");
}

TEST(StablehloText, HasTransfersWithTheHostAsCustomCalls) {
  GraphBuilder b;
  Value* x = b.arg(f32({2}));
  const auto send = [&](HostAttrs attrs) {
    b.region().append(Kind::kSend, {x}, {}, attrs, unknown_loc());
  };
  send({1, -1, x->type});
  send({2, -1, x->type, true, true});
  send({2, -1, x->type, true});
  const HostAttrs kept{2, -1, x->type, true};
  Value* y = b.region().append(Kind::kRecv, {}, {x->type}, kept, unknown_loc())->result();
  const std::string text = stablehlo_text(b.done({y}));
  for (
      const char* line :
      {R"("stablehlo.custom_call"(%0) <{backend_config = "channel=1", has_side_effect = true, call_target_name = "SendToHost"}> : (tensor<2xf32>) -> ())",
       R"(<{backend_config = "channel=2,index", has_side_effect = true, call_target_name = "MoveToHost"}>)",
       R"(<{backend_config = "channel=2", has_side_effect = true, call_target_name = "MoveToHost"}>)",
       R"(%1 = "stablehlo.custom_call"() <{backend_config = "channel=2", has_side_effect = true, call_target_name = "MoveToDevice"}> : () -> (tensor<2xf32>))"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

TEST(StablehloText, SaysHowWholeArraysLieOnTheCores) {
  GraphBuilder b(4);
  b.module().mesh = {"", {{"x", 2}, {"y", 2}}, {}};
  Value* x = b.arg(f32({3, 4}));
  Module& m = b.done({x});
  m.main->args[0].sharding.dim_axes = {{}, {1, 0}};
  m.main->results[0].sharding.dim_axes = {{1}, {}};
  const std::string text = stablehlo_text(m);
  EXPECT_NE(text.find(R"(mhlo.spmd_parameters_shardings = ["{devices=[1,4]0,2,1,3}"])"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(R"(mhlo.spmd_output_sharding = "{{devices=[2,1,2]0,2,1,3 )"
                      R"(last_tile_dim_replicate}}")"),
            std::string::npos)
      << text;
}

std::string constant_text(const Dense& value) {
  GraphBuilder b;
  const std::string text =
      stablehlo_text(b.done({b.op(Kind::kConstant, {}, value.type, ConstantAttrs{value})}));
  const size_t begin = text.find("dense<");
  return text.substr(begin, text.find(" : ", begin) - begin);
}

TEST(StablehloText, ConstantsAreTheirBytesAndBooleansWords) {
  EXPECT_EQ(constant_text(make_splat(f32({2}), 1)), "dense<\"0x0000803F\">");
  EXPECT_EQ(constant_text(make_dense_of<float>(f32({2}), {1, -2})),
            "dense<\"0x0000803F000000C0\">");
  EXPECT_EQ(constant_text(make_splat(f32({0, 2}), 1)), "dense<>");
  EXPECT_EQ(constant_text(make_splat(i1({3}), 1)), "dense<true>");
  EXPECT_EQ(constant_text(make_dense_of<char>(i1({}), {0})), "dense<false>");
  EXPECT_EQ(constant_text(make_dense_of<char>(i1({2, 2}), {0, 1, 1, 0})),
            "dense<[[false, true], [true, false]]>");
}

TEST(StablehloText, KindsOfOurOwnAreCalls) {
  GraphBuilder b;
  Value* x = b.arg(f32({4}));
  const std::string text = stablehlo_text(b.done({b.op(Kind::kErf, {x}, f32({4}))}));
  EXPECT_NE(text.find("\"stablehlo.custom_call\"(%0) <{call_target_name = \"mhlo.erf\"}>"),
            std::string::npos)
      << text;
}

TEST(StablehloText, AMultiplyAddIsTwoOps) {
  GraphBuilder b;
  Value* x = b.arg(f32({4}));
  Value* y = b.op(Kind::kMultiplyAdd, {x, x, x}, f32({4}));
  const std::string text = stablehlo_text(b.done({b.op(Kind::kAbs, {y}, f32({4}))}));
  for (const char* line : {"%1 = \"stablehlo.multiply\"(%0, %0) : ",
                           "%2 = \"stablehlo.add\"(%1, %0) : ", "\"stablehlo.abs\"(%2)"}) {
    EXPECT_NE(text.find(line), std::string::npos) << text;
  }
}

TEST(StablehloText, RefusesGraphsOfOtherStages) {
  GraphBuilder b;
  Value* x = b.arg(f32({4}));
  EXPECT_THROW(stablehlo_text(b.done({b.op(Kind::kReshard, {x}, f32({4}), ShardingAttrs{})})),
               Error);
}

}  // namespace
}  // namespace tpu::compiler
