// Pass `inline`: calls, nested calls, composites, locations, recursion.
#include "passes/inline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_builder.hpp"
#include "ir/verify.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::kinds;

// func @name(x) { return op(x) }, or calls `callee` if one is given.
void add_function(Module& m, const std::string& name, Kind kind, const std::string& callee = "") {
  auto f = std::make_unique<Function>();
  f->name = name;
  f->loc = unknown_loc();
  f->args.push_back({"", f32({}), {}, -1, false});
  f->results.push_back({"", f32({}), {}});
  Value* x = f->body.add_arg(f32({}));
  auto loc = std::make_shared<const Loc>(Loc{"inner", {}});
  Attrs attrs = NoAttrs{};
  if (!callee.empty()) {
    attrs = CallAttrs{callee, ""};
  }
  Value* y = f->body.append(kind, {x}, {f32({})}, attrs, loc)->result();
  f->body.append(Kind::kReturn, {y}, {}, NoAttrs{}, loc);
  m.functions.push_back(std::move(f));
}

TEST(Inline, ExpandsNestedCallsEachTime) {
  GraphBuilder b;
  Value* x = b.arg(f32({}));
  Value* y = b.op(Kind::kCall, {x}, f32({}), CallAttrs{"outer", ""});
  Value* z = b.op(Kind::kComposite, {y}, f32({}), CallAttrs{"inner", "chlo.negate"});
  add_function(b.module(), "outer", Kind::kCall, "inner");
  add_function(b.module(), "inner", Kind::kNegate);
  Module& m = b.done({z});
  verify(m);
  inline_calls(m);
  m.number_ops();
  verify(m);
  EXPECT_EQ(kinds(m), "negate negate return");
  EXPECT_TRUE(m.functions.empty());
  EXPECT_EQ(m.main->body.ops[1]->operands[0], m.main->body.ops[0]->result());
}

TEST(Inline, TakesTheCallersLineIfThereIsNone) {
  GraphBuilder b;
  Value* y = b.op(Kind::kCall, {b.arg(f32({}))}, f32({}), CallAttrs{"inner", ""});
  add_function(b.module(), "inner", Kind::kNegate);
  Module& m = b.done({y});
  inline_calls(m);
  EXPECT_EQ(to_string(*m.main->body.ops[0]->loc), "test.py:1:1 (inner)");
}

TEST(Inline, RefusesRecursion) {
  GraphBuilder b;
  Value* y = b.op(Kind::kCall, {b.arg(f32({}))}, f32({}), CallAttrs{"again", ""});
  add_function(b.module(), "again", Kind::kCall, "again");
  Module& m = b.done({y});
  try {
    inline_calls(m);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("recursion is not supported"));
    EXPECT_THAT(e.what(), testing::HasSubstr("test.py:1:1: stablehlo.call"));
  }
}

TEST(Inline, RefusesMainThatCallsItself) {
  GraphBuilder b;
  Value* y = b.op(Kind::kCall, {b.arg(f32({}))}, f32({}), CallAttrs{"main", ""});
  Module& m = b.done({y});
  try {
    inline_calls(m);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                testing::HasSubstr("test.py:1:1: stablehlo.call: the function @main calls itself"));
  }
}

}  // namespace
}  // namespace tpu::compiler
