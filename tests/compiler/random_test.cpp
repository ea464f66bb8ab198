// Random graphs: diamonds, broadcasts into reductions, views of views, dots, on boards of any VMEM
// size. Values are small integers where sums are involved, so results must have equal bits.
// TPU_TEST_SEED=N runs one seed.
#include <algorithm>

#include "../unit/compiler/graph_builder.hpp"
#include "entry/pipeline.hpp"
#include "run_compiled.hpp"

namespace tpu::compiler::test {
namespace {

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  Module& make() {
    const int args = 2 + pick(3);
    for (int i = 0; i < args; ++i) {
      values_.push_back(b_.arg(f32(random_dims())));
    }
    const int ops = 5 + pick(20);
    for (int i = 0; i < ops; ++i) {
      step();
    }
    std::vector<Value*> results;
    const int count = 1 + pick(4);
    for (int i = 0; i < count; ++i) {
      results.push_back(
          values_[values_.size() - 1 - static_cast<size_t>(pick(6)) % values_.size()]);
    }
    return b_.done(results);
  }

  GraphBuilder& builder() { return b_; }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  int64_t random_dim() {
    static constexpr std::array<int64_t, 12> kDims = {1, 2, 3, 5, 7, 8, 10, 16, 31, 64, 127, 130};
    return kDims[static_cast<size_t>(pick(kDims.size()))];
  }
  Dims random_dims() {
    Dims d;
    const int rank = pick(4);
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) {
      const int64_t n = random_dim();
      if (count * n <= 20000) {
        d.push_back(n);
        count *= n;
      }
    }
    return d;
  }
  Value* any() { return values_[static_cast<size_t>(pick(static_cast<int>(values_.size())))]; }

  // A value of the same shape as `like`: another one, a constant or a broadcast.
  Value* partner(Value* like) {
    std::vector<Value*> same;
    for (Value* v : values_) {
      if (v->type == like->type) {
        same.push_back(v);
      }
    }
    switch (pick(4)) {
      case 0:
        return b_.constant(like->type, pick(5) - 2);
      case 1:
        if (like->type.rank() > 0) {
          const auto dim = static_cast<int64_t>(pick(static_cast<int>(like->type.rank())));
          Value* line =
              b_.op(Kind::kIota, {}, f32({like->type.dims[static_cast<size_t>(dim)]}), DimAttrs{0});
          return bounded(b_.op(Kind::kBroadcastInDim, {line}, like->type, DimsAttrs{{dim}}));
        }
        [[fallthrough]];
      default:
        return same[static_cast<size_t>(pick(static_cast<int>(same.size())))];
    }
  }

  // Keeps values small integers: clamp to [-3, 3].
  Value* bounded(Value* v) {
    Value* low = b_.constant(v->type, -3);
    Value* high = b_.constant(v->type, 3);
    return b_.op(Kind::kMinimum, {b_.op(Kind::kMaximum, {v, low}, v->type), high}, v->type);
  }

  void step() {
    Value* x = any();
    switch (pick(11)) {
      case 0:
      case 1:
        values_.push_back(bounded(b_.op(Kind::kAdd, {x, partner(x)}, x->type)));
        return;
      case 2:
        values_.push_back(bounded(b_.op(Kind::kMultiply, {x, partner(x)}, x->type)));
        return;
      case 3:
        select(x);
        return;
      case 4:
      case 5:
        reduce(x);
        return;
      case 6:
        transpose(x);
        return;
      case 7:
        reshape(x);
        return;
      case 8:
        slice(x);
        return;
      case 9:
        dot(x);
        return;
      default:
        concatenate(x);
        return;
    }
  }

  void select(Value* x) {
    Value* y = partner(x);
    Value* p = b_.op(Kind::kCompare, {x, y}, {Elem::kI1, x->type.dims},
                     CompareAttrs{CompareDirection::kGt, CompareType::kFloat});
    values_.push_back(b_.op(Kind::kSelect, {p, x, b_.op(Kind::kNegate, {y}, x->type)}, x->type));
  }

  void reduce(Value* x) {
    Dims dims, kept;
    for (int64_t d = 0; d < x->type.rank(); ++d) {
      if (pick(2) == 0) {
        dims.push_back(d);
      } else {
        kept.push_back(x->type.dims[static_cast<size_t>(d)]);
      }
    }
    const Kind kind =
        std::array{Kind::kAdd, Kind::kMaximum, Kind::kMinimum}[static_cast<size_t>(pick(3))];
    Value* init = b_.constant(f32({}), pick(3));
    Value* r = bounded(b_.reduce(x, init, dims, f32(kept), kind));
    values_.push_back(r);
    Dims map;
    for (int64_t d = 0; d < x->type.rank(); ++d) {
      if (std::find(dims.begin(), dims.end(), d) == dims.end()) {
        map.push_back(d);
      }
    }
    Value* back = b_.op(Kind::kBroadcastInDim, {r}, x->type, DimsAttrs{map});
    values_.push_back(bounded(b_.op(Kind::kSubtract, {x, back}, x->type)));
  }

  void transpose(Value* x) {
    Dims perm, dims;
    for (int64_t d = 0; d < x->type.rank(); ++d) {
      perm.push_back(d);
    }
    std::shuffle(perm.begin(), perm.end(), random_);
    for (const int64_t d : perm) {
      dims.push_back(x->type.dims[static_cast<size_t>(d)]);
    }
    values_.push_back(b_.op(Kind::kTranspose, {x}, f32(dims), DimsAttrs{perm}));
  }

  void reshape(Value* x) {
    int64_t rest = x->type.count();
    Dims dims;
    for (const int64_t f : {2, 3, 5, 7, 8}) {
      if (rest % f == 0 && pick(3) == 0) {
        dims.push_back(f);
        rest /= f;
      }
    }
    dims.push_back(rest);
    std::shuffle(dims.begin(), dims.end(), random_);
    values_.push_back(b_.op(Kind::kReshape, {x}, f32(dims)));
  }

  void slice(Value* x) {
    SliceAttrs a;
    Dims dims;
    for (const int64_t n : x->type.dims) {
      const int64_t start = pick(static_cast<int>(n)), stride = 1 + pick(2);
      const int64_t limit = start + 1 + pick(static_cast<int>(n - start));
      a.start.push_back(start);
      a.limit.push_back(limit);
      a.stride.push_back(stride);
      dims.push_back((limit - start + stride - 1) / stride);
    }
    values_.push_back(b_.op(Kind::kSlice, {x}, f32(dims), a));
  }

  void dot(Value* x) {
    if (x->type.rank() == 0) {
      return;
    }
    const auto d = static_cast<size_t>(pick(static_cast<int>(x->type.rank())));
    for (Value* y : values_) {
      for (size_t e = 0; e < y->type.dims.size(); ++e) {
        if (y->type.dims[e] != x->type.dims[d] ||
            x->type.count() / x->type.dims[d] * (y->type.count() / y->type.dims[e]) > 20000 ||
            pick(2) == 0) {
          continue;
        }
        DotAttrs a;
        a.lhs_contract = {static_cast<int64_t>(d)};
        a.rhs_contract = {static_cast<int64_t>(e)};
        Dims out;
        for (size_t i = 0; i < x->type.dims.size(); ++i) {
          if (i != d) {
            out.push_back(x->type.dims[i]);
          }
        }
        for (size_t i = 0; i < y->type.dims.size(); ++i) {
          if (i != e) {
            out.push_back(y->type.dims[i]);
          }
        }
        values_.push_back(bounded(b_.op(Kind::kDotGeneral, {x, y}, f32(out), a)));
        return;
      }
    }
  }

  void concatenate(Value* x) {
    if (x->type.rank() == 0 || x->type.count() > 10000) {
      return;
    }
    const auto d = pick(static_cast<int>(x->type.rank()));
    Dims out = x->type.dims;
    out[static_cast<size_t>(d)] *= 2;
    values_.push_back(
        b_.op(Kind::kConcatenate, {x, partner(x)}, f32(out), DimAttrs{static_cast<int64_t>(d)}));
  }

  std::mt19937 random_;
  GraphBuilder b_;
  std::vector<Value*> values_;
};

void run_seed(uint32_t seed, Style style) {
  Generator g(seed);
  Module& m = g.make();
  if (seed % 2 == 0) {
    run_passes(m, canonical_passes());
  }
  RunOptions o;
  o.small_integers = true;
  o.tolerance = 0;
  o.data_seed = seed;
  o.order_seeds = {seed};
  o.style = style;
  static constexpr std::array<const char*, 4> kVmem = {"core.vmem_kib=64", "core.vmem_kib=96",
                                                       "core.vmem_kib=256", "core.vmem_kib=16384"};
  o.overrides = {kVmem[seed % 4]};
  SCOPED_TRACE("TPU_TEST_SEED=" + std::to_string(seed));
  try {
    check_graph(m, o);
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what();
  }
  if (testing::Test::HasFailure()) {
    std::printf("%s\n", print(m).c_str());
  }
}

constexpr uint32_t kSeeds = 300;

class RandomGraphs : public testing::TestWithParam<Style> {};

TEST_P(RandomGraphs, EqualTheInterpreter) {
  if (const char* seed = std::getenv("TPU_TEST_SEED"); seed != nullptr) {
    run_seed(static_cast<uint32_t>(std::stoul(seed)), GetParam());
    return;
  }
  for (uint32_t seed = 1; seed <= kSeeds && !HasFailure(); ++seed) {
    run_seed(seed, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, RandomGraphs, testing::Values(Style::kBest, Style::kXla2019),
                         [](const auto& of) { return std::string(name_of(of.param)); });

}  // namespace
}  // namespace tpu::compiler::test
