// Ops that the pass `legalize` says by others: the graph before the pass against the graph after it
// (interpreter), and against the compiled program.
#include "../../unit/compiler/graph_builder.hpp"
#include "../run_compiled.hpp"
#include "ir/verify.hpp"
#include "legalize/legalize.hpp"
#include "passes/simplify.hpp"

namespace tpu::compiler::test {
namespace {

Type bf16(Dims dims) { return {Elem::kBf16, std::move(dims)}; }

// Body that keeps the pair with the larger (smaller) first element, the earlier one on a tie.
void add_arg_body(Op* op, CompareDirection direction) {
  Region* body = op->add_region();
  std::vector<Value*> args;
  for (size_t i = 0; i < 4; ++i) {
    args.push_back(body->add_arg({op->type(i % 2).elem, {}}));
  }
  const CompareType how = is_float(args[0]->type.elem) ? CompareType::kFloat : CompareType::kSigned;
  Value* first = body->append(Kind::kCompare, {args[0], args[2]}, {i1({})},
                              CompareAttrs{direction, how}, op->loc)
                     ->result();
  std::vector<Value*> out;
  for (size_t i = 0; i < 2; ++i) {
    out.push_back(body->append(Kind::kSelect, {first, args[i], args[i + 2]}, {args[i]->type},
                               NoAttrs{}, op->loc)
                      ->result());
  }
  body->append(Kind::kReturn, out, {}, NoAttrs{}, op->loc);
}

void add_compare_body(Op* op, CompareDirection direction, CompareType how) {
  Region* body = op->add_region();
  std::vector<Value*> args;
  for (size_t i = 0; i < 2 * op->results.size(); ++i) {
    args.push_back(body->add_arg({op->type(i / 2).elem, {}}));
  }
  Value* r = body->append(Kind::kCompare, {args[0], args[1]}, {i1({})},
                          CompareAttrs{direction, how}, op->loc)
                 ->result();
  body->append(Kind::kReturn, {r}, {}, NoAttrs{}, op->loc);
}

WindowAttrs window(Dims size, Dims stride, Dims low, Dims high) {
  WindowAttrs a;
  a.base_dilation = a.window_dilation = Dims(size.size(), 1);
  a.size = std::move(size);
  a.stride = std::move(stride);
  a.pad_low = std::move(low);
  a.pad_high = std::move(high);
  return a;
}

Dims positions(const Dims& in, const WindowAttrs& a) {
  Dims out;
  for (size_t d = 0; d < in.size(); ++d) {
    const int64_t n = in[d] == 0 ? 0 : (in[d] - 1) * a.base_dilation[d] + 1;
    const int64_t padded = a.pad_low[d] + n + a.pad_high[d];
    const int64_t reach = (a.size[d] - 1) * a.window_dilation[d] + 1;
    out.push_back(padded < reach ? 0 : (padded - reach) / a.stride[d] + 1);
  }
  return out;
}

Value* pool(GraphBuilder& b, Value* x, Value* init, Kind kind, const WindowAttrs& a) {
  return b.with_body(
      b.op(Kind::kReduceWindow, {x, init}, {x->type.elem, positions(x->type.dims, a)}, a), kind);
}

// The interpreter before the pass against the interpreter and the untimed machine after it.
Outcome check_lowered(Module& module, RunOptions o = {}) {
  const auto args = random_arguments(module, o);
  const auto want = interpret(module, args);
  legalize(module);
  simplify(module);
  module.number_ops();
  verify(module);
  const auto got = interpret(module, args);
  for (size_t i = 0; i < want[0].size(); ++i) {
    expect_near(want[0][i], got[0][i], o.tolerance, "lowered result " + std::to_string(i));
  }
  return check_graph(module, o);
}

RunOptions options(bool small, bool integers = true) {
  RunOptions o;
  o.small_integers = integers;
  o.tolerance = integers ? 0 : 2e-5;
  if (small) {
    o.overrides = {"core.vmem_kib=64"};
  }
  return o;
}

TEST(LoweredReduce, PairsOverAnyDims) {
  const std::vector<std::pair<Dims, Dims>> cases = {
      {{7}, {0}},       {{1}, {0}},       {{25, 10}, {1}},       {{25, 10}, {0}},
      {{5, 130}, {1}},  {{300, 33}, {0}}, {{4, 5, 6}, {0, 2}},   {{4, 5, 6}, {1, 2}},
      {{2, 9, 1}, {2}}, {{1000}, {0}},    {{3, 4, 5, 2}, {0, 2}}};
  for (const bool small : {false, true}) {
    GraphBuilder b;
    std::vector<Value*> out;
    for (const auto& [dims, axes] : cases) {
      Dims kept;
      for (size_t d = 0; d < dims.size(); ++d) {
        if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) == axes.end()) {
          kept.push_back(dims[d]);
        }
      }
      Value* x = b.arg(f32(dims));
      Value* n = b.op(Kind::kIota, {}, i32(dims), DimAttrs{axes.back()});
      Value* low = b.constant(f32({}), -3);
      Value* zero = b.constant(i32({}), -1);
      Op* op = b.region().append(Kind::kReduce, {x, n, low, zero}, {f32(kept), i32(kept)},
                                 DimsAttrs{axes}, unknown_loc());
      add_arg_body(op, CompareDirection::kGe);
      out.push_back(op->result(0));
      out.push_back(op->result(1));
    }
    check_lowered(b.done(out), options(small));
  }
}

TEST(LoweredReduce, ManyRunsOfDimsAndComputedInitialValues) {
  GraphBuilder b;
  Value* x = b.arg(f32({3, 4, 5, 6, 3, 2}));
  Value* init = b.arg(f32({}));
  Value* sum = b.reduce(x, init, {0, 2, 4}, f32({4, 6, 2}), Kind::kAdd);
  Value* max = b.reduce(x, init, {1, 3, 5}, f32({3, 5, 3}), Kind::kMaximum);
  Value* empty = b.arg(f32({9, 0}));
  Value* none = b.reduce(empty, init, {1}, f32({9}), Kind::kAdd);
  check_lowered(b.done({sum, max, none}), options(false));
}

struct WindowCase {
  Dims in;
  WindowAttrs a;
};

std::vector<WindowCase> window_cases() {
  std::vector<WindowCase> out = {
      {{50}, window({3}, {1}, {0}, {0})},
      {{50}, window({3}, {2}, {4}, {1})},
      {{50}, window({20}, {7}, {5}, {9})},
      {{50}, window({17}, {17}, {0}, {3})},
      {{50}, window({50}, {1}, {49}, {0})},
      {{50}, window({50}, {1}, {0}, {49})},
      {{50}, window({50}, {1}, {0}, {0})},
      {{50}, window({4}, {1}, {-3}, {-2})},
      {{5}, window({9}, {1}, {0}, {0})},
      {{1}, window({1}, {1}, {0}, {0})},
      {{}, window({}, {}, {}, {})},
      {{2, 12, 13, 5}, window({1, 2, 2, 1}, {1, 2, 2, 1}, {0, 0, 0, 0}, {0, 0, 0, 0})},
      {{2, 12, 13, 5}, window({1, 3, 3, 1}, {1, 2, 2, 1}, {0, 1, 0, 0}, {0, 1, 1, 0})},
      {{2, 12, 13, 5}, window({1, 5, 5, 1}, {1, 3, 1, 1}, {0, 2, 2, 0}, {0, 2, 2, 0})},
      {{3, 7, 7, 20}, window({1, 7, 7, 1}, {1, 1, 1, 1}, {0, 0, 0, 0}, {0, 0, 0, 0})},
      {{40, 64}, window({32, 1}, {1, 1}, {0, 0}, {0, 0})}};
  WindowCase dilated{{50}, window({3}, {2}, {4}, {1})};
  dilated.a.base_dilation = {2};
  dilated.a.window_dilation = {3};
  out.push_back(dilated);
  dilated = {{9, 8}, window({2, 3}, {1, 2}, {1, 3}, {2, 0})};
  dilated.a.base_dilation = {3, 1};
  dilated.a.window_dilation = {2, 2};
  out.push_back(dilated);
  dilated = {{70}, window({30}, {1}, {3}, {0})};
  dilated.a.window_dilation = {2};
  out.push_back(dilated);
  return out;
}

TEST(LoweredWindow, SimpleBodies) {
  for (const bool small : {false, true}) {
    for (const Kind kind : {Kind::kAdd, Kind::kMaximum, Kind::kMinimum}) {
      GraphBuilder b;
      std::vector<Value*> out;
      for (const WindowCase& c : window_cases()) {
        out.push_back(pool(b, b.arg(f32(c.in)), b.constant(f32({}), 1), kind, c.a));
        out.push_back(pool(b, b.arg(i32(c.in)), b.constant(i32({}), 1), kind, c.a));
      }
      SCOPED_TRACE(std::string(kind_name(kind)) + (small ? " 64 KiB" : ""));
      check_lowered(b.done(out), options(small));
    }
  }
}

TEST(LoweredWindow, Pairs) {
  GraphBuilder b;
  std::vector<Value*> out;
  for (const WindowCase& c : window_cases()) {
    const Dims result = positions(c.in, c.a);
    Value* x = b.arg(f32(c.in));
    Value* n = b.arg(i32(c.in));
    Op* op = b.region().append(Kind::kReduceWindow,
                               {x, n, b.constant(f32({}), -1e30), b.constant(i32({}), -1)},
                               {f32(result), i32(result)}, c.a, unknown_loc());
    add_arg_body(op, CompareDirection::kGt);
    out.push_back(op->result(0));
  }
  check_lowered(b.done(out), options(false));
}

TEST(LoweredWindow, BoolsAndBf16) {
  GraphBuilder b;
  const WindowAttrs a = window({2, 3}, {1, 2}, {1, 0}, {0, 1});
  check_lowered(
      b.done({pool(b, b.arg(i1({9, 20})), b.constant(i1({}), 1), Kind::kAnd, a),
              pool(b, b.arg(i1({9, 20})), b.constant(i1({}), 0), Kind::kOr, a),
              pool(b, b.arg(bf16({9, 20})), b.constant(bf16({}), -100), Kind::kMaximum, a)}),
      options(false));
}

// Sums wrap, the largest and smallest are those of the type.
TEST(LoweredWindow, NarrowIntegers) {
  for (const Elem e : {Elem::kI8, Elem::kU8, Elem::kI16, Elem::kU16}) {
    GraphBuilder b;
    Value* x = b.arg({e, {9, 300}});
    Value* high = b.constant({e, {}}, 100);
    std::vector<Value*> out;
    for (const Kind kind : {Kind::kAdd, Kind::kMultiply, Kind::kMaximum, Kind::kMinimum}) {
      out.push_back(pool(b, x, high, kind, window({2, 40}, {1, 3}, {1, 5}, {0, 0})));
      out.push_back(b.reduce(x, high, {1}, {e, {9}}, kind));
    }
    SCOPED_TRACE(elem_name(e));
    check_lowered(b.done(out), options(false));
  }
}

// Pools of the usual sizes: one pad, one kernel each.
TEST(LoweredWindow, TakesFewCommands) {
  GraphBuilder b;
  Value* x = b.arg(f32({4, 56, 56, 64}));
  Value* y = pool(b, x, b.constant(f32({}), -1e30), Kind::kMaximum,
                  window({1, 3, 3, 1}, {1, 2, 2, 1}, {0, 1, 1, 0}, {0, 1, 1, 0}));
  Value* z = pool(b, y, b.constant(f32({}), 0), Kind::kAdd,
                  window({1, 28, 28, 1}, {1, 1, 1, 1}, {0, 0, 0, 0}, {0, 0, 0, 0}));
  EXPECT_LE(check_lowered(b.done({y, z}), options(false)).commands, 60);
}

TEST(LoweredSelectAndScatter, TiesPaddingAndOverlap) {
  const std::vector<WindowCase> cases = {
      {{11, 12}, window({2, 2}, {2, 2}, {0, 0}, {0, 0})},
      {{11, 12}, window({3, 3}, {2, 2}, {1, 0}, {1, 1})},
      {{11, 12}, window({3, 2}, {1, 1}, {1, 1}, {1, 0})},
      {{11, 12}, window({2, 3}, {3, 5}, {0, 2}, {0, 4})},
      {{2, 9, 8, 3}, window({1, 3, 3, 1}, {1, 2, 2, 1}, {0, 1, 1, 0}, {0, 1, 1, 0})},
      {{2, 12, 12, 20}, window({1, 2, 2, 1}, {1, 2, 2, 1}, {0, 0, 0, 0}, {0, 0, 0, 0})},
      {{30}, window({5}, {2}, {-3}, {-2})},
      {{30}, window({5}, {2}, {4}, {20})},
      {{5}, window({9}, {1}, {0}, {0})},
      {{1}, window({1}, {1}, {0}, {0})}};
  for (const bool small : {false, true}) {
    for (const auto direction : {CompareDirection::kGe, CompareDirection::kLe}) {
      GraphBuilder b;
      std::vector<Value*> out;
      for (const WindowCase& c : cases) {
        Value* x = b.arg(f32(c.in));
        Value* dy = b.arg(f32(positions(c.in, c.a)));
        Value* y = b.op(Kind::kSelectAndScatter, {x, dy, b.constant(f32({}), 0)}, x->type, c.a);
        Region* select = y->def->add_region();
        Value* p = select->add_arg(f32({}));
        Value* q = select->add_arg(f32({}));
        Value* r = select
                       ->append(Kind::kCompare, {p, q}, {i1({})},
                                CompareAttrs{direction, CompareType::kFloat}, unknown_loc())
                       ->result();
        select->append(Kind::kReturn, {r}, {}, NoAttrs{}, unknown_loc());
        out.push_back(b.with_body(y, Kind::kAdd));
      }
      check_lowered(b.done(out), options(small));
    }
  }
}

TEST(LoweredSort, DimsSizesAndTies) {
  const std::vector<std::pair<Dims, int64_t>> cases = {{{7}, 0},     {{1}, 0},     {{64}, 0},
                                                       {{5, 33}, 1}, {{33, 5}, 0}, {{3, 16, 4}, 1},
                                                       {{300}, 0},   {{0, 4}, 1}};
  for (const bool small : {false, true}) {
    GraphBuilder b;
    std::vector<Value*> out;
    for (const auto& [dims, dim] : cases) {
      Value* key = b.arg(f32(dims));
      Value* value = b.op(Kind::kIota, {}, i32(dims), DimAttrs{dim});
      Op* op = b.region().append(Kind::kSort, {key, value}, {key->type, value->type},
                                 SortAttrs{dim, true}, unknown_loc());
      add_compare_body(op, CompareDirection::kLt, CompareType::kTotalOrder);
      out.push_back(op->result(0));
      out.push_back(op->result(1));
      Value* n = b.arg(i32(dims));
      op = b.region().append(Kind::kSort, {n}, {n->type}, SortAttrs{dim, false}, unknown_loc());
      add_compare_body(op, CompareDirection::kGt, CompareType::kSigned);
      out.push_back(op->result(0));
    }
    check_lowered(b.done(out), options(small));
  }
}

TEST(LoweredBatchNorm, TrainingInferenceAndGradient) {
  for (const int64_t feature : {0, 1, 3}) {
    for (const Elem e : {Elem::kF32, Elem::kBf16}) {
      GraphBuilder b;
      const Type x{e, {4, 5, 6, 7}};
      const Type f{e, {x.dims[static_cast<size_t>(feature)]}};
      const BatchNormAttrs a{0.01, feature};
      Value* in = b.arg(x);
      Value* scale = b.arg(f);
      Value* offset = b.arg(f);
      Value* mean = b.arg(f);
      Value* root = b.arg(f);
      Value* variance = b.op(Kind::kMultiply, {root, root}, f);
      const Op* training = b.region().append(Kind::kBatchNormTraining, {in, scale, offset},
                                             {x, f, f}, a, unknown_loc());
      const Op* grad = b.region().append(
          Kind::kBatchNormGrad, {in, scale, mean, variance, b.arg(x)}, {x, f, f}, a, unknown_loc());
      Value* applied = b.op(Kind::kBatchNormInference, {in, scale, offset, mean, variance}, x, a);
      RunOptions o;
      o.tolerance = e == Elem::kBf16 ? 3e-2 : 1e-3;
      check_lowered(b.done({training->result(0), training->result(1), training->result(2),
                            grad->result(0), grad->result(1), grad->result(2), applied}),
                    o);
    }
  }
}

// Rows of a table that are added to, as the gradient of an embedding does. Comparing makes an array
// of all rows for each update where rows are wide, which only few updates are worth.
TEST(LoweredScatter, ComparesWhereThatIsCheaper) {
  struct Rows {
    int64_t batch, rows, width, updates;  // batch 0: no batching dim
    bool compared;
  };
  for (const auto& [batch, rows, width, updates, compared] :
       {Rows{0, 64, 128, 512, false}, Rows{0, 64, 128, 16, true}, Rows{0, 32, 128, 256, false},
        Rows{0, 8, 64, 512, true}, Rows{0, 1000, 1, 512, true}, Rows{0, 8192, 1, 512, true},
        Rows{0, 128, 128, 16, false}, Rows{64, 512, 1, 32, true}}) {
    GraphBuilder b;
    ScatterAttrs a;
    const bool batched = batch > 0;
    a.update_window_dims = {batched ? 2 : 1};
    a.inserted_window_dims = {batched ? 1 : 0};
    a.scatter_dims_to_operand_dims = a.inserted_window_dims;
    a.index_vector_dim = batched ? 2 : 1;
    const auto shape = [&](int64_t n, int64_t m) {
      return batched ? Dims{batch, n, m} : Dims{n, m};
    };
    if (batched) {
      a.input_batching_dims = a.scatter_indices_batching_dims = {0};
    }
    Value* i = b.op(Kind::kIota, {}, {Elem::kI32, shape(updates, 1)}, DimAttrs{batched ? 1 : 0});
    i = b.op(Kind::kRemainder, {i, b.constant(i->type, static_cast<double>(rows))}, i->type);
    Value* x = b.arg(f32(shape(rows, width)));
    Value* u = b.arg(f32(shape(updates, width)));
    Value* y = b.with_body(b.op(Kind::kScatter, {x, i, u}, x->type, a), Kind::kAdd);
    Module& module = b.done({y});
    SCOPED_TRACE(std::to_string(batch) + " x " + std::to_string(rows) + " rows of " +
                 std::to_string(width) + ", " + std::to_string(updates) + " updates");
    check_lowered(module);
    const bool reduces = std::ranges::any_of(
        module.main->body.ops, [](const auto& op) { return op->kind == Kind::kReduce; });
    EXPECT_EQ(reduces, compared);
  }
}

TEST(LoweredMap, BodyOnWholeArrays) {
  GraphBuilder b;
  Value* x = b.arg(f32({5, 130}));
  Value* y = b.op(Kind::kMap, {x, b.arg(f32({5, 130}))}, x->type, DimsAttrs{{0, 1}});
  check_lowered(b.done({b.with_body(y, Kind::kSubtract)}), options(false));
}

TEST(Lowered, NoCompilerOpIsLeft) {
  GraphBuilder b;
  Value* x = b.arg(f32({9}));
  Value* y = pool(b, x, b.constant(f32({}), 0), Kind::kAdd, window({3}, {1}, {1}, {1}));
  Module& m = b.done({y});
  EXPECT_TRUE(legalize(m));
  EXPECT_EQ(kinds(m).find("reduce_window"), std::string::npos);
  EXPECT_FALSE(legalize(m));
}

}  // namespace
}  // namespace tpu::compiler::test
