// Factor rules of ops of random forms, proved by computing on parts.
#include <gtest/gtest.h>

#include <numeric>

#include "graph_builder.hpp"
#include "rule_check.hpp"

namespace tpu::compiler::test {
namespace {

class RandomRules : public testing::Test {
 protected:
  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool often() { return pick(0, 2) > 0; }
  int64_t size() { return Dims{1, 2, 2, 3, 4, 4}[static_cast<size_t>(pick(0, 5))]; }
  Dims sizes(int64_t rank) {
    Dims out;
    for (int64_t d = 0; d < rank; ++d) {
      out.push_back(size());
    }
    return out;
  }
  Dims order(int64_t n) {
    Dims out(static_cast<size_t>(n));
    std::iota(out.begin(), out.end(), 0);
    std::shuffle(out.begin(), out.end(), random_);
    return out;
  }
  // Random dimensions among those of `order`, taken from its end, ascending.
  static Dims take(Dims& order, int64_t n) {
    Dims out;
    for (int64_t i = 0; i < n; ++i) {
      out.push_back(order.back());
      order.pop_back();
    }
    return out;
  }

  // Runs make(builder) 150 times; at least a third must have something to cut.
  template <typename Make>
  void repeat(Make&& make) {
    int tried = 0;
    for (int i = 0; i < 150 && !HasFailure(); ++i) {
      GraphBuilder b;
      tried += check_rule(*make(b)->def, random_) > 0 ? 1 : 0;
    }
    EXPECT_GE(tried, 50);
  }

  std::mt19937 random_{23};
};

TEST_F(RandomRules, Reshape) {
  repeat([&](GraphBuilder& b) {
    Dims primes = Dims{2, 2, 2, 3};
    primes.push_back(pick(1, 3));
    const auto grouped = [&] {
      std::shuffle(primes.begin(), primes.end(), random_);
      Dims out{1};
      for (const int64_t p : primes) {
        pick(0, 1) == 0 ? out.push_back(p) : static_cast<void>(out.back() *= p);
      }
      return out;
    };
    Value* x = b.arg(f32(grouped()));
    return b.op(Kind::kReshape, {x}, f32(grouped()));
  });
}

TEST_F(RandomRules, SliceAndPad) {
  repeat([&](GraphBuilder& b) {
    SliceAttrs s;
    PadAttrs p;
    Dims in, sliced, padded;
    for (int64_t d = 0; d < 3; ++d) {
      const int64_t n = 2 * size();
      in.push_back(n);
      s.start.push_back(pick(0, 1));
      s.stride.push_back(pick(1, 2));
      s.limit.push_back(often() ? n : pick(s.start.back() + 1, n));
      sliced.push_back((s.limit.back() - s.start.back() + s.stride.back() - 1) / s.stride.back());
      p.low.push_back(pick(-1, 1));
      p.high.push_back(often() ? 0 : pick(-1, 1));
      p.interior.push_back(pick(0, 1));
      padded.push_back(n + p.low.back() + p.high.back() + (n - 1) * p.interior.back());
    }
    Value* x = b.arg(f32(in));
    return pick(0, 1) == 0 ? b.op(Kind::kSlice, {x}, f32(sliced), s)
                           : b.op(Kind::kPad, {x, b.arg(f32({}))}, f32(padded), p);
  });
}

TEST_F(RandomRules, Windows) {
  repeat([&](GraphBuilder& b) {
    WindowAttrs a;
    Dims in = sizes(3), out;
    for (int64_t& n : in) {
      a.size.push_back(pick(1, 2));
      a.stride.push_back(pick(1, 2));
      a.base_dilation.push_back(often() ? 1 : 2);
      a.window_dilation.push_back(often() ? 1 : 2);
      a.pad_low.push_back(often() ? 0 : pick(-1, 2));
      a.pad_high.push_back(often() ? 0 : pick(0, 2));
      n *= 2;
      const int64_t room = (n - 1) * a.base_dilation.back() + 1 + a.pad_low.back() +
                           a.pad_high.back() - (a.size.back() - 1) * a.window_dilation.back() - 1;
      out.push_back(room < 0 ? 0 : room / a.stride.back() + 1);
    }
    return b.with_body(b.op(Kind::kReduceWindow, {b.arg(f32(in)), b.arg(f32({}))}, f32(out), a),
                       Kind::kAdd);
  });
}

TEST_F(RandomRules, Dot) {
  repeat([&](GraphBuilder& b) {
    const int64_t batch = pick(0, 2), contract = pick(0, 2);
    const int64_t left = batch + contract + pick(0, 2), right = batch + contract + pick(0, 2);
    Dims l = order(left), r = order(right);
    DotAttrs a;
    a.lhs_batch = take(l, batch);
    a.lhs_contract = take(l, contract);
    a.rhs_batch = take(r, batch);
    a.rhs_contract = take(r, contract);
    Dims x = sizes(left), y = sizes(right), out;
    const auto share = [&](const Dims& p, const Dims& q, bool kept) {
      for (size_t i = 0; i < p.size(); ++i) {
        y[static_cast<size_t>(q[i])] = x[static_cast<size_t>(p[i])];
        if (kept) {
          out.push_back(x[static_cast<size_t>(p[i])]);
        }
      }
    };
    share(a.lhs_batch, a.rhs_batch, true);
    share(a.lhs_contract, a.rhs_contract, false);
    std::sort(l.begin(), l.end());
    std::sort(r.begin(), r.end());
    for (const int64_t d : l) {
      out.push_back(x[static_cast<size_t>(d)]);
    }
    for (const int64_t d : r) {
      out.push_back(y[static_cast<size_t>(d)]);
    }
    return b.op(Kind::kDotGeneral, {b.arg(f32(x)), b.arg(f32(y))}, f32(out), a);
  });
}

TEST_F(RandomRules, Convolution) {
  repeat([&](GraphBuilder& b) {
    const int64_t spatial = pick(0, 2);
    Dims in = order(spatial + 2), kernel = order(spatial + 2), out = order(spatial + 2);
    ConvAttrs a;
    (often() ? a.feature_groups : a.batch_groups) = Dims{1, 2, 4}[static_cast<size_t>(pick(0, 2))];
    const int64_t batch = size(), reduced = size(), features = size();
    Dims x(in.size()), k(in.size()), y(in.size());
    const auto dim = [](Dims& list, Dims& shape, int64_t n) {
      shape[static_cast<size_t>(list.back())] = n;
      return take(list, 1)[0];
    };
    a.input_batch = dim(in, x, batch * a.batch_groups);
    a.output_batch = dim(out, y, batch);
    a.input_feature = dim(in, x, reduced * a.feature_groups);
    a.kernel_input_feature = dim(kernel, k, reduced);
    const int64_t channels = features * a.feature_groups * a.batch_groups;
    a.kernel_output_feature = dim(kernel, k, channels);
    a.output_feature = dim(out, y, channels);
    for (int64_t i = 0; i < spatial; ++i) {
      const int64_t n = 2 * size(), taps = pick(1, 2);
      a.window_stride.push_back(pick(1, 2));
      a.lhs_dilation.push_back(often() ? 1 : 2);
      a.rhs_dilation.push_back(often() ? 1 : 2);
      a.pad_low.push_back(often() ? 0 : pick(-1, 1));
      a.pad_high.push_back(often() ? 0 : 1);
      a.window_reversal.push_back(!often());
      const int64_t room = (n - 1) * a.lhs_dilation.back() + 1 + a.pad_low.back() +
                           a.pad_high.back() - (taps - 1) * a.rhs_dilation.back() - 1;
      a.input_spatial.push_back(dim(in, x, n));
      a.kernel_spatial.push_back(dim(kernel, k, taps));
      a.output_spatial.push_back(dim(out, y, room < 0 ? 0 : room / a.window_stride.back() + 1));
    }
    return b.op(Kind::kConvolution, {b.arg(f32(x)), b.arg(f32(k))}, f32(y), a);
  });
}

// A random table, records of indices into it and windows of it.
struct Indexed {
  Dims table, indices, moved, window;  // moved: result of gather, updates of scatter
  Dims moved_window, gone, batching, indices_batching, map;
  int64_t vector_dim = 0;
};

class RandomIndexed : public RandomRules {
 protected:
  Indexed indexed() {
    Indexed x;
    const int64_t rank = pick(1, 3), batching = pick(0, 1);
    x.table = sizes(rank);
    Dims dims = order(rank);
    x.batching = take(dims, batching);
    x.gone = take(dims, pick(0, static_cast<int64_t>(dims.size())));
    std::sort(x.gone.begin(), x.gone.end());
    x.map = x.gone;
    for (const int64_t d : dims) {
      if (!often()) {
        x.map.push_back(d);
      }
    }
    std::shuffle(x.map.begin(), x.map.end(), random_);
    Dims records = sizes(batching + pick(0, 2));
    Dims record_dims = order(static_cast<int64_t>(records.size()));
    x.vector_dim = pick(0, static_cast<int64_t>(records.size()));
    for (int64_t i = 0; i < batching; ++i) {
      const int64_t r = take(record_dims, 1)[0];
      records[static_cast<size_t>(r)] = x.table[static_cast<size_t>(x.batching[0])];
      x.indices_batching.push_back(r < x.vector_dim ? r : r + 1);
    }
    x.indices = records;
    x.indices.insert(x.indices.begin() + x.vector_dim, static_cast<int64_t>(x.map.size()));
    for (int64_t d = 0; d < rank; ++d) {
      const int64_t n = x.table[static_cast<size_t>(d)];
      const bool one = contains(x.gone, d) || contains(x.batching, d);
      x.window.push_back(one ? 1 : often() ? n : pick(1, n));
    }
    place(x, records);
    return x;
  }

  static bool contains(const Dims& list, int64_t d) {
    return std::find(list.begin(), list.end(), d) != list.end();
  }

  // Dimensions of windows and records, mixed; each kind stays in order.
  void place(Indexed& x, const Dims& records) {
    size_t record = 0;
    int64_t d = 0;
    while (record < records.size() || d < static_cast<int64_t>(x.table.size())) {
      const bool window_left = d < static_cast<int64_t>(x.table.size());
      if (window_left && (contains(x.gone, d) || contains(x.batching, d))) {
        ++d;
      } else if (window_left && (record == records.size() || pick(0, 1) == 0)) {
        x.moved_window.push_back(static_cast<int64_t>(x.moved.size()));
        x.moved.push_back(x.window[static_cast<size_t>(d++)]);
      } else {
        x.moved.push_back(records[record++]);
      }
    }
  }
};

TEST_F(RandomIndexed, Gather) {
  repeat([&](GraphBuilder& b) {
    const Indexed x = indexed();
    const GatherAttrs a{x.moved_window, x.gone,   x.batching,  x.indices_batching,
                        x.map,          x.window, x.vector_dim};
    return b.op(Kind::kGather, {b.arg(f32(x.table)), b.arg(i32(x.indices))}, f32(x.moved), a);
  });
}

TEST_F(RandomIndexed, Scatter) {
  repeat([&](GraphBuilder& b) {
    const Indexed x = indexed();
    const ScatterAttrs a{x.moved_window,     x.gone, x.batching,
                         x.indices_batching, x.map,  x.vector_dim};
    const Kind kinds[] = {Kind::kAdd, Kind::kMaximum, Kind::kSubtract};
    return b.with_body(
        b.op(Kind::kScatter, {b.arg(f32(x.table)), b.arg(i32(x.indices)), b.arg(f32(x.moved))},
             f32(x.table), a),
        kinds[pick(0, 2)]);
  });
}

}  // namespace
}  // namespace tpu::compiler::test
