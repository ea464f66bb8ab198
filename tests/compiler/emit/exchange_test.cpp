// Collectives that move pieces between cores, over groups of every kind, against the interpreter;
// random orders of the queues of all cores find missing credits.
#include "../../unit/compiler/graph_builder.hpp"
#include "../run_compiled.hpp"

namespace tpu::compiler::test {
namespace {

const std::vector<Groups> kAllGroups = {{{0, 1, 2, 3, 4, 5, 6, 7}},
                                        {{7, 2, 5, 0, 3, 6, 1, 4}},
                                        {{0, 1}, {2, 3}, {4, 5}, {6, 7}},
                                        {{0, 2, 4, 6}, {1, 3, 5, 7}},
                                        {{0, 3}, {1, 5}, {2, 7}, {4, 6}},
                                        {{0, 1, 2, 4}, {3, 5, 6, 7}},
                                        {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}};

// A program of several cores whose arguments and results are split along dimension 0.
class Cores {
 public:
  explicit Cores(int64_t cores = 8) : b(cores) {
    b.module().mesh.name = "mesh";
    b.module().mesh.axes = {{"d", cores}};
  }
  Value* arg(Type type) {
    Value* v = b.arg(type);
    ArgInfo& info = b.module().main->args.back();
    info.global.dims[0] *= b.module().num_cores;
    info.sharding.dim_axes.assign(type.dims.size(), {});
    info.sharding.dim_axes[0] = {0};
    return v;
  }
  Module& done(const std::vector<Value*>& results) {
    Module& m = b.done(results);
    for (ResultInfo& r : m.main->results) {
      r.sharding.dim_axes.assign(r.global.dims.size(), {});
      r.global.dims[0] *= m.num_cores;
      r.sharding.dim_axes[0] = {0};
    }
    return m;
  }
  GraphBuilder b;
};

CollectiveAttrs groups_of(const Groups& groups, int64_t dim, int64_t concat = 0,
                          bool split = false) {
  CollectiveAttrs a;
  a.groups = groups;
  a.dim = dim;
  a.concat_dim = concat;
  a.split_count = split ? static_cast<int64_t>(groups[0].size()) : 0;
  return a;
}

RunOptions exact(uint32_t seed, bool small) {
  RunOptions o;
  o.tolerance = 0;
  o.small_integers = true;
  o.order_seeds = {0, seed};
  if (small) {
    o.overrides = {"core.vmem_kib=64"};
  }
  return o;
}

RunOptions with_words(RunOptions o) {
  o.words = true;
  return o;
}

TEST(Exchange, AllGatherAndAllToAll) {
  uint32_t seed = 1;
  for (const Groups& groups : kAllGroups) {
    const auto n = static_cast<int64_t>(groups[0].size());
    for (const bool small : {false, true}) {
      for (const int64_t dim : {0, 1, 2}) {
        if (small && (dim + seed) % 3 != 0) {
          ++seed;
          continue;
        }
        Cores c;
        Value* x = c.arg(f32({8, 16, small ? 136 : 8}));
        Value* h = c.arg({Elem::kBf16, {3, 5}});
        Type gathered = x->type, moved = x->type, h_gathered = h->type;
        gathered.dims[static_cast<size_t>(dim)] *= n;
        h_gathered.dims[1] *= n;
        const int64_t concat = (dim + 1) % 3;
        moved.dims[static_cast<size_t>(dim)] /= n;
        moved.dims[static_cast<size_t>(concat)] *= n;
        Value* g = c.b.op(Kind::kAllGather, {x}, gathered, groups_of(groups, dim));
        Value* t = c.b.op(Kind::kAllToAll, {x}, moved, groups_of(groups, dim, concat, true));
        Value* same = c.b.op(Kind::kAllToAll, {x}, x->type, groups_of(groups, dim, dim, true));
        Value* hg = c.b.op(Kind::kAllGather, {h}, h_gathered, groups_of(groups, 1));
        Value* y = c.b.op(Kind::kAdd, {same, x}, x->type);
        SCOPED_TRACE(to_string(Attrs(groups_of(groups, dim))) + (small ? " small" : ""));
        check_graph(c.done({g, t, y, hg}), exact(++seed, small));
      }
    }
  }
}

TEST(Exchange, ReducesOverAnyGroups) {
  uint32_t seed = 1;
  for (const Groups& groups : kAllGroups) {
    const auto n = static_cast<int64_t>(groups[0].size());
    Cores c;
    Value* x = c.arg(f32({3, 16, 5}));
    Value* i = c.arg({Elem::kI32, {8}});
    Value* s = c.b.with_body(
        c.b.op(Kind::kReduceScatter, {x}, f32({3, 16 / n, 5}), groups_of(groups, 1)), Kind::kAdd);
    Value* a =
        c.b.with_body(c.b.op(Kind::kAllReduce, {x}, x->type, groups_of(groups, 0)), Kind::kMaximum);
    Value* o =
        c.b.with_body(c.b.op(Kind::kAllReduce, {i}, i->type, groups_of(groups, 0)), Kind::kOr);
    Value* first = c.b.op(Kind::kCollectiveBroadcast, {x}, x->type, groups_of(groups, 0));
    SCOPED_TRACE(to_string(Attrs(groups_of(groups, 0))));
    check_graph(c.done({s, a, o, first}), exact(++seed, false));
  }
}

TEST(Exchange, GroupsOfSeveralSizes) {
  const std::vector<Groups> all = {
      {{0, 1}, {2, 3, 4, 5, 6}, {7}}, {{5, 0, 3}, {1, 7}, {6, 2, 4}}, {{7, 6, 5, 4, 3, 2, 1}, {0}}};
  uint32_t seed = 1;
  for (const Groups& groups : all) {
    Cores c;
    Value* x = c.arg(f32({3, 16, 5}));
    Value* i = c.arg({Elem::kI32, {8}});
    Value* h = c.arg({Elem::kBf16, {3, 7}});
    Value* w = c.arg({Elem::kI64, {2, 3}});
    const CollectiveAttrs a = groups_of(groups, 0);
    const auto reduced = [&](Value* v, Kind body) {
      return c.b.with_body(c.b.op(Kind::kAllReduce, {v}, v->type, a), body);
    };
    SCOPED_TRACE(to_string(Attrs(a)));
    check_graph(
        c.done({reduced(x, Kind::kAdd), reduced(i, Kind::kOr), reduced(h, Kind::kMaximum),
                reduced(w, Kind::kAdd), reduced(w, Kind::kMinimum), reduced(w, Kind::kMultiply),
                c.b.op(Kind::kCollectiveBroadcast, {x}, x->type, a),
                c.b.op(Kind::kCollectiveBroadcast, {w}, w->type, a)}),
        with_words(exact(++seed, false)));
  }
}

TEST(Exchange, BroadcastsLeaveZerosOutsideOfAllGroups) {
  uint32_t seed = 1;
  for (const Groups& groups :
       {Groups{{2, 1}}, Groups{{7, 0, 3, 4, 6}, {5, 1}}, Groups{{3}}, Groups{{0, 1}, {2, 3}}}) {
    Cores c;
    Value* x = c.arg(f32({3, 50}));
    Value* h = c.arg({Elem::kI1, {7}});
    const CollectiveAttrs a = groups_of(groups, 0);
    SCOPED_TRACE(to_string(Attrs(a)));
    check_graph(c.done({c.b.op(Kind::kCollectiveBroadcast, {x}, x->type, a),
                        c.b.op(Kind::kCollectiveBroadcast, {h}, h->type, a)}),
                exact(++seed, false));
  }
}

// Several operands, also of several types and without elements, and bodies that halves do not have.
TEST(Exchange, Words64) {
  const Groups pairs = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
  const CollectiveAttrs a = groups_of(pairs, 1);
  Cores c;
  const Type type{Elem::kI64, {4, 6}};
  Value* x = c.arg(type);
  Value* y = c.arg({Elem::kU64, type.dims});
  Value* z = c.arg(f32(type.dims));
  Value* none = c.b.constant(f32({4, 0}), 0);
  std::vector<Value*> results;
  const auto add = [&](Kind kind, const std::vector<Value*>& in, const CollectiveAttrs& attrs,
                       const Dims& dims, std::optional<Kind> body = std::nullopt) {
    std::vector<Type> types;
    for (const Value* v : in) {
      types.push_back({v->type.elem, v->type.count() == 0 ? Dims{4, 0} : dims});
    }
    Op* op = c.b.region().append(kind, in, types, attrs, unknown_loc());
    if (body) {
      c.b.with_body(op->result(), *body);
    }
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i] != none) {
        results.push_back(op->result(i));
      }
    }
  };
  add(Kind::kAllToAll, {x, y}, groups_of(pairs, 1, 0, true), {8, 3});
  add(Kind::kAllGather, {x, z, none, y}, a, {4, 12});
  add(Kind::kAllGather, {z, none}, a, {4, 12});
  add(Kind::kAllReduce, {x, x}, a, type.dims, Kind::kAdd);
  add(Kind::kAllReduce, {y}, a, type.dims, Kind::kMultiply);
  for (const Kind body : {Kind::kAdd, Kind::kMaximum, Kind::kMinimum, Kind::kMultiply}) {
    add(Kind::kReduceScatter, {x}, a, {4, 3}, body);
  }
  check_graph(c.done(results), with_words(exact(1, false)));
}

// Exchanges of every form over different groups, several on their way at once.
TEST(Exchange, DifferentGroupsInOneProgram) {
  const std::vector<Groups> by_axis = {{{0, 1}, {2, 3}, {4, 5}, {6, 7}},
                                       {{0, 2, 4, 6}, {1, 3, 5, 7}},
                                       {{0, 3}, {1, 2}, {4, 7}, {5, 6}},
                                       {{0, 1, 2, 3, 4, 5, 6, 7}}};
  uint32_t seed = 1;
  for (const int64_t elements : {96, 10 * 4096 + 24}) {  // doubling; halving, streamed and packed
    Cores c;
    std::vector<Value*> results;
    for (const Groups& groups : by_axis) {
      const auto n = static_cast<int64_t>(groups[0].size());
      const CollectiveAttrs a = groups_of(groups, 0);
      Value* x = c.arg(f32({elements}));
      Value* s = c.b.with_body(c.b.op(Kind::kAllReduce, {x}, x->type, a), Kind::kAdd);
      Value* again = c.b.with_body(c.b.op(Kind::kAllReduce, {s}, x->type, a), Kind::kMaximum);
      results.push_back(c.b.op(Kind::kAdd, {again, x}, x->type));
      results.push_back(c.b.op(Kind::kAllGather, {x}, f32({elements * n}), a));
      results.push_back(
          c.b.with_body(c.b.op(Kind::kReduceScatter, {x}, f32({elements / n}), a), Kind::kAdd));
      results.push_back(c.b.op(Kind::kAllToAll, {x}, x->type, groups_of(groups, 0, 0, true)));
      PermuteAttrs p;
      for (const auto& group : groups) {
        p.pairs.push_back({group[0], group[1]});
        p.pairs.push_back({group[1], group[0]});
      }
      results.push_back(c.b.op(Kind::kCollectivePermute, {x}, x->type, p));
    }
    RunOptions o = exact(++seed, false);
    o.overrides = {"core.vmem_kib=512"};
    SCOPED_TRACE(elements);
    check_graph(c.done(results), o);
  }
}

TEST(Exchange, PermutesWithAndWithoutHoles) {
  using Pairs = std::vector<std::array<int64_t, 2>>;
  const std::vector<Pairs> all = {{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}, {7, 0}},
                                  {{0, 1}},
                                  {{1, 0}, {0, 1}, {5, 5}},
                                  {{0, 7}, {7, 3}, {3, 2}},
                                  {{0, 4}, {1, 5}, {2, 6}, {3, 7}, {4, 0}, {5, 1}, {6, 2}, {7, 3}},
                                  {}};
  uint32_t seed = 1;
  for (const Pairs& pairs : all) {
    for (const bool small : {false, true}) {
      Cores c;
      Value* x = c.arg(f32({3, small ? 7000 : 50}));
      Value* h = c.arg({Elem::kI1, {7}});
      PermuteAttrs a;
      a.pairs = pairs;
      Value* y = c.b.op(Kind::kCollectivePermute, {x}, x->type, a);
      Value* z = c.b.op(Kind::kCollectivePermute, {y}, x->type, a);
      Value* b = c.b.op(Kind::kCollectivePermute, {h}, h->type, a);
      SCOPED_TRACE(to_string(Attrs(a)) + (small ? " small" : ""));
      check_graph(c.done({y, z, b}), exact(++seed, small));
    }
  }
}

// Exchanges of every form on some of the board's cores, in any order.
TEST(Exchange, OnAnyCoresOfTheBoard) {
  const std::vector<std::vector<int>> all = {
      {5, 2}, {4, 5, 6, 7}, {6, 0, 3, 5}, {0, 1, 2, 3, 6, 7, 4, 5}, {7, 3, 6, 0, 1, 4, 2, 5}};
  uint32_t seed = 1;
  for (const std::vector<int>& cores : all) {
    const auto n = static_cast<int64_t>(cores.size());
    Groups everyone(1);
    for (int64_t p = 0; p < n; ++p) {
      everyone[0].push_back(p);
    }
    for (const int64_t elements : {96, 10 * 4096 + 24}) {  // doubling; halving
      Cores c(n);
      Value* x = c.arg(f32({elements}));
      const CollectiveAttrs a = groups_of(everyone, 0);
      Value* s = c.b.with_body(c.b.op(Kind::kAllReduce, {x}, x->type, a), Kind::kAdd);
      Value* g = c.b.op(Kind::kAllGather, {x}, f32({elements * n}), a);
      Value* t = c.b.op(Kind::kAllToAll, {x}, x->type, groups_of(everyone, 0, 0, true));
      PermuteAttrs ring;
      for (int64_t p = 0; p < n; ++p) {
        ring.pairs.push_back({p, (p + 1) % n});
      }
      Value* r = c.b.op(Kind::kCollectivePermute, {x}, x->type, ring);
      RunOptions o = exact(++seed, false);
      o.overrides = {"core.vmem_kib=512"};
      o.cores = cores;
      SCOPED_TRACE(std::to_string(n) + " cores from " + std::to_string(cores[0]));
      EXPECT_EQ(check_graph(c.done({s, g, t, r}), o).executable.cores.size(), cores.size());
    }
  }
}

std::string refusal(int64_t partitions, std::vector<int> cores) {
  Cores c(partitions);
  RunOptions o;
  o.cores = std::move(cores);
  try {
    check_graph(c.done({c.arg(f32({4}))}), o);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Exchange, RefusesCoresThatTheBoardLacks) {
  EXPECT_EQ(refusal(2, {1, 8}), "there is no core 8; board v3_8 has the cores 0..7");
  EXPECT_EQ(refusal(2, {3, 3}), "core 3 is named twice");
  EXPECT_EQ(refusal(2, {3}), "the program runs on 2 cores and the list names 1; name one for each");
  EXPECT_EQ(refusal(16, {}), "the program runs on 16 cores; board v3_8 has 8; use a smaller mesh");
}

}  // namespace
}  // namespace tpu::compiler::test
