// Categories and types of operations against the compiler's list of kinds.
#include "timeline/op_category.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "ir/op_kinds.hpp"

namespace tpu::model {
namespace {

using compiler::Kind;

TEST(OpCategory, FollowsXla) {
  for (const auto& [name, category, type] : {
           std::tuple{"dot_general", "convolution", "dot_general"},
           std::tuple{"dot_general+tanh+subtract", "convolution fusion", "dot_general"},
           std::tuple{"transpose+convolution", "convolution fusion", "convolution"},
           std::tuple{"all_reduce", "all-reduce", "all_reduce"},
           std::tuple{"all_reduce+all_reduce", "all-reduce", "all_reduce"},
           std::tuple{"all_reduce+multiply", "all-reduce fusion", "all_reduce"},
           std::tuple{"all_gather", "all-gather", "all_gather"},
           std::tuple{"reduce_scatter", "reduce-scatter", "reduce_scatter"},
           std::tuple{"reduce_scatter+add", "all-reduce-scatter fusion", "reduce_scatter"},
           std::tuple{"collective_permute+add", "collective-permute", "collective_permute"},
           std::tuple{"multiply+subtract", "loop fusion", "subtract"},
           std::tuple{"a+b+c+d+e+f+3 more", "loop fusion", "f"},
           std::tuple{"tanh", "non-fusion elementwise", "tanh"},
           std::tuple{"reduce", "reduce", "reduce"},
           std::tuple{"transpose", "data formatting", "transpose"},
           std::tuple{"reshape+pad", "data formatting", "pad"},
           std::tuple{"broadcast_in_dim", "broadcast", "broadcast_in_dim"},
           std::tuple{"dynamic_update_slice", "dynamic-update-slice", "dynamic_update_slice"},
           std::tuple{"result 3", "copy", "copy"},
           std::tuple{"indexed_read", "gather", "indexed_read"},
           std::tuple{"indexed_read+multiply", "gather fusion", "multiply"},
           std::tuple{"indexed_combine", "scatter", "indexed_combine"},
           std::tuple{"custom_call", "custom-call", "custom_call"},
           std::tuple{"send", "host send", "send"},
           std::tuple{"case", "conditional", "case"},
           std::tuple{"rng_bit_generator", "rng-bit-generator", "rng_bit_generator"},
       }) {
    EXPECT_EQ(hlo_category(name), category) << name;
    EXPECT_EQ(op_type(name), type) << name;
  }
}

// A kind that the compiler gets has to be sorted here too.
TEST(OpCategory, KnowsTheElementwiseKinds) {
#define KIND(id, name, ...) \
  EXPECT_EQ(hlo_category(name) == "non-fusion elementwise", elementwise(Kind::id)) << name;
  const auto elementwise = [](Kind kind) { return compiler::is_elementwise(kind); };
  TPU_OP_KINDS(KIND)
#undef KIND
}

}  // namespace
}  // namespace tpu::model
