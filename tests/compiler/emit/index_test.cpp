// Gather and scatter in random forms against their definitions in the interpreter, on boards with
// much and with little VMEM, with indices that lie outside.
#include <algorithm>

#include "../../unit/compiler/graph_builder.hpp"
#include "../run_compiled.hpp"

namespace tpu::compiler::test {
namespace {

// Dimension numbers of one gather or scatter.
struct Form {
  Dims operand, slices, indices, result;  // result: of the gather, updates of the scatter
  Dims collapsed, batching, indices_batching, map, offset;
  int64_t vector_dim = 0;
};

int64_t pick(std::mt19937& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint32_t>(high - low + 1));
}

Form random_form(std::mt19937& random, int64_t longest) {
  Form f;
  Dims batch, window;
  for (int64_t d = 0, rank = pick(random, 1, 4); d < rank; ++d) {
    const int64_t n = pick(random, 1, longest);
    f.operand.push_back(n);
    const int64_t role = pick(random, 0, 4);
    if (role == 0) {
      f.batching.push_back(d);
      f.slices.push_back(1);
      continue;
    }
    if (role <= 2) {
      f.map.push_back(d);
    }
    if (role == 1) {
      f.collapsed.push_back(d);
    }
    f.slices.push_back(role == 1 ? 1 : role == 3 ? n : pick(random, 1, n));
    if (role != 1) {
      window.push_back(f.slices.back());
    }
  }
  std::shuffle(f.map.begin(), f.map.end(), random);
  for (int64_t d = 0, rank = pick(random, 0, 2); d < rank; ++d) {
    batch.push_back(pick(random, 1, 5));
  }
  std::vector<size_t> place;
  for (const int64_t d : f.batching) {
    batch.insert(batch.begin() + pick(random, 0, static_cast<int64_t>(batch.size())), -1 - d);
  }
  for (const int64_t d : f.batching) {
    const auto at = std::find(batch.begin(), batch.end(), -1 - d);
    f.indices_batching.push_back(at - batch.begin());
    *at = f.operand[static_cast<size_t>(d)];
  }
  f.indices = batch;
  f.vector_dim = pick(random, 0, static_cast<int64_t>(batch.size()));
  if (f.map.size() != 1 || random() % 2 == 0) {
    f.indices.insert(f.indices.begin() + f.vector_dim, static_cast<int64_t>(f.map.size()));
    for (int64_t& d : f.indices_batching) {
      d += d >= f.vector_dim ? 1 : 0;
    }
  } else {
    f.vector_dim = static_cast<int64_t>(f.indices.size());
  }
  const auto rank = static_cast<int64_t>(batch.size() + window.size());
  std::vector<int64_t> all;
  for (int64_t d = 0; d < rank; ++d) {
    all.push_back(d);
  }
  std::shuffle(all.begin(), all.end(), random);
  f.offset.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(window.size()));
  std::sort(f.offset.begin(), f.offset.end());
  size_t next_window = 0, next_batch = 0;
  for (int64_t d = 0; d < rank; ++d) {
    const bool is_offset = std::find(f.offset.begin(), f.offset.end(), d) != f.offset.end();
    f.result.push_back(is_offset ? window[next_window++] : batch[next_batch++]);
  }
  return f;
}

Value* shifted(GraphBuilder& b, Value* indices, int64_t by) {
  return b.op(Kind::kSubtract, {indices, b.constant(indices->type, static_cast<double>(by))},
              indices->type);
}

Value* gather_of(GraphBuilder& b, const Form& f, Value* x, Value* indices) {
  GatherAttrs a;
  a.offset_dims = f.offset;
  a.collapsed_slice_dims = f.collapsed;
  a.operand_batching_dims = f.batching;
  a.start_indices_batching_dims = f.indices_batching;
  a.start_index_map = f.map;
  a.slice_sizes = f.slices;
  a.index_vector_dim = f.vector_dim;
  return b.op(Kind::kGather, {x, indices}, {x->type.elem, f.result}, a);
}

Value* scatter_of(GraphBuilder& b, const Form& f, Value* x, Value* indices, Value* updates,
                  bool unique = false) {
  ScatterAttrs a;
  a.update_window_dims = f.offset;
  a.inserted_window_dims = f.collapsed;
  a.input_batching_dims = f.batching;
  a.scatter_indices_batching_dims = f.indices_batching;
  a.scatter_dims_to_operand_dims = f.map;
  a.index_vector_dim = f.vector_dim;
  a.unique_indices = unique;
  return b.op(Kind::kScatter, {x, indices, updates}, x->type, a);
}

// The body returns the update.
Value* with_set_body(Value* v) {
  Region* body = v->def->add_region();
  const Type scalar{v->type.elem, {}};
  body->add_arg(scalar);
  Value* update = body->add_arg(scalar);
  body->append(Kind::kReturn, {update}, {}, NoAttrs{}, v->def->loc);
  return v;
}

RunOptions exact(uint32_t seed, bool small_vmem) {
  RunOptions o;
  o.tolerance = 0;
  o.small_integers = true;
  o.data_seed = seed;
  if (small_vmem) {
    o.overrides = {"core.vmem_kib=64"};
  }
  return o;
}

TEST(Gather, RandomForms) {
  std::mt19937 random(11);
  for (uint32_t round = 0; round < 120; ++round) {
    const Form f = random_form(random, round % 3 == 0 ? 40 : 7);
    const Elem elem = std::array{Elem::kF32, Elem::kBf16, Elem::kI32, Elem::kI1}[round % 4];
    const Elem index = std::array{Elem::kI32, Elem::kU32}[round / 4 % 2];
    GraphBuilder b;
    Value* x = b.arg({elem, f.operand});
    Value* i = b.arg({index, f.indices});
    if (index == Elem::kI32) {
      i = shifted(b, i, 3);
    }
    SCOPED_TRACE("round " + std::to_string(round) + " " + to_string(f.operand) + " by " +
                 to_string(f.indices) + " slices " + to_string(f.slices));
    check_graph(b.done({gather_of(b, f, x, i)}), exact(round, round % 5 == 0));
  }
}

RunOptions any_bits(uint32_t seed, bool small_vmem) {
  RunOptions o = exact(seed, small_vmem);
  o.small_integers = false;
  o.any_bits = true;
  return o;
}

TEST(Gather, KeepsNanPayloadsAndSubnormals) {
  std::mt19937 random(17);
  for (uint32_t round = 0; round < 60; ++round) {
    const Form f = random_form(random, round % 3 == 0 ? 40 : 7);
    GraphBuilder b;
    Value* x = b.arg({round % 2 == 0 ? Elem::kF32 : Elem::kBf16, f.operand});
    Value* i = shifted(b, b.arg(i32(f.indices)), 3);
    SCOPED_TRACE("round " + std::to_string(round) + " " + to_string(f.operand) + " by " +
                 to_string(f.indices) + " slices " + to_string(f.slices));
    check_graph(b.done({gather_of(b, f, x, i)}), any_bits(round, round % 5 == 0));
  }
}

// Large enough for lists, results in HBM, and lists that pass through VMEM in pieces.
TEST(Gather, LongListsAndLargeTables) {
  for (const bool small : {false, true}) {
    GraphBuilder b;
    Value* x = b.arg(f32({3000, 37}));
    Value* i = b.arg(i32({5000, 1}));
    Value* many = b.op(Kind::kMultiply, {i, b.constant(i->type, 333)}, i->type);
    Form rows;
    rows.operand = {3000, 37};
    rows.slices = {1, 37};
    rows.indices = {5000, 1};
    rows.result = {5000, 37};
    rows.collapsed = {0};
    rows.map = {0};
    rows.offset = {1};
    rows.vector_dim = 1;
    Form elements = rows;
    elements.slices = {1, 1};
    elements.collapsed = {0, 1};
    elements.offset = {};
    elements.result = {5000};
    check_graph(b.done({gather_of(b, rows, x, many), gather_of(b, elements, x, many)}),
                exact(1, small));
  }
}

// A command has four strides; the others are commands of their own.
TEST(Gather, WindowsOfMoreStridesThanACommandHas) {
  Form f;
  f.operand = {3, 4, 4, 4, 4, 4, 4};
  f.slices = {1, 2, 3, 2, 2, 3, 2};
  f.indices = {5, 1};
  f.result = {5, 2, 3, 2, 2, 3, 2};
  f.collapsed = {0};
  f.map = {0};
  f.offset = {1, 2, 3, 4, 5, 6};
  f.vector_dim = 1;
  GraphBuilder b;
  Value* x = b.arg(f32(f.operand));
  Value* i = shifted(b, b.arg(i32(f.indices)), 3);
  Value* updates = b.arg(f32(f.result));
  Value* y = b.arg(f32(f.operand));
  Value* scattered = with_set_body(scatter_of(b, f, y, b.arg(i32(f.indices)), updates));
  check_graph(b.done({gather_of(b, f, x, i), scattered}), exact(1, false));
}

TEST(Scatter, RandomForms) {
  std::mt19937 random(12);
  const std::array kinds = {Kind::kAdd, Kind::kMaximum, Kind::kMinimum, Kind::kMultiply};
  for (uint32_t round = 0; round < 120; ++round) {
    const Form f = random_form(random, round % 3 == 0 ? 40 : 7);
    const Elem elem = std::array{Elem::kF32, Elem::kI32, Elem::kU32}[round % 3];
    GraphBuilder b;
    Value* x = b.arg({elem, f.operand});
    Value* i = shifted(b, b.arg(i32(f.indices)), 2);
    Value* u = b.arg({elem, f.result});
    Value* y = scatter_of(b, f, x, i, u);
    y = round % 2 == 0 ? with_set_body(y) : b.with_body(y, kinds[round / 2 % 4]);
    SCOPED_TRACE("round " + std::to_string(round) + " " + to_string(f.operand) + " by " +
                 to_string(f.indices) + " updates " + to_string(f.result));
    check_graph(b.done({y}), exact(round, round % 5 == 0));
  }
}

// Elements without an update, and updates that replace.
TEST(Scatter, KeepsNanPayloadsAndSubnormals) {
  std::mt19937 random(18);
  for (uint32_t round = 0; round < 60; ++round) {
    const Form f = random_form(random, round % 3 == 0 ? 40 : 7);
    const Elem elem = round % 2 == 0 ? Elem::kF32 : Elem::kBf16;
    GraphBuilder b;
    Value* x = b.arg({elem, f.operand});
    Value* i = shifted(b, b.arg(i32(f.indices)), 2);
    Value* u = b.arg({elem, f.result});
    Value* number = b.constant(u->type, 1.5);
    SCOPED_TRACE("round " + std::to_string(round) + " " + to_string(f.operand) + " by " +
                 to_string(f.indices) + " updates " + to_string(f.result));
    check_graph(b.done({with_set_body(scatter_of(b, f, x, i, u)),
                        b.with_body(scatter_of(b, f, x, i, number), Kind::kMaximum),
                        b.with_body(scatter_of(b, f, x, i, number), Kind::kMinimum)}),
                any_bits(round, round % 5 == 0));
  }
}

Form row_form(int64_t rows, int64_t width, int64_t updates) {
  Form f;
  f.operand = {rows, width};
  f.indices = {updates, 1};
  f.result = {updates, width};
  f.collapsed = {0};
  f.map = {0};
  f.offset = {1};
  f.vector_dim = 1;
  return f;
}

// The last of updates that meet stays; targets donated, used again, and in HBM.
TEST(Scatter, RowsOfLargeTargets) {
  for (const bool small : {false, true}) {
    for (const bool donated : {false, true}) {
      GraphBuilder b;
      const Form f = row_form(900, 130, 300);
      Value* x = b.arg(f32(f.operand));
      Value* i = b.arg(i32(f.indices));
      Value* u = b.arg(f32(f.result));
      Value* first = with_set_body(scatter_of(b, f, x, i, u));
      Value* twice = b.op(Kind::kAdd, {u, u}, u->type);
      Value* second = with_set_body(scatter_of(b, f, first, shifted(b, i, 1), twice));
      if (donated) {
        b.module().main->args[0].alias_result = 0;
      }
      SCOPED_TRACE(std::string(small ? "small " : "") + (donated ? "donated" : ""));
      check_graph(donated ? b.done({second}) : b.done({second, first, x}), exact(3, small));
    }
  }
}

// Rows that are read and written at once must be copied first.
TEST(Scatter, UpdatesThatAreTheTarget) {
  GraphBuilder b;
  const Form f = row_form(100, 700, 100);
  Value* x = b.arg(f32(f.operand));
  Value* i = b.arg(i32(f.indices));
  b.module().main->args[0].alias_result = 0;
  check_graph(b.done({with_set_body(scatter_of(b, f, x, i, x))}), exact(5, false));
}

TEST(Scatter, UniqueIndicesNeedNoOrder) {
  GraphBuilder b;
  const Form f = row_form(400, 64, 10);
  Value* x = b.arg(f32(f.operand));
  Value* i = b.op(Kind::kIota, {}, i32(f.indices), DimAttrs{0});
  Value* u = b.arg(f32(f.result));
  check_graph(b.done({b.with_body(scatter_of(b, f, x, i, u, true), Kind::kMultiply)}),
              exact(6, false));
}

}  // namespace
}  // namespace tpu::compiler::test
