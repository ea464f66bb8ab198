// dot_general on arrays: operands are packed to [batch][M][K] and [batch][N][K], K in the order of
// the contracting dimensions, and every result is one column sum of the matrix unit (or a double
// sum).
#include <algorithm>

#include "arith/bf16.hpp"
#include "arith/host_f32.hpp"
#include "arith/mxu_column.hpp"
#include "ir/elements.hpp"

namespace tpu::compiler::eval {
namespace {

struct Packed {
  int64_t batch = 1, rows = 1, k = 1;
  std::vector<float> values;  // [batch][rows][k]
};

Packed pack(const Tensor& t, const Dims& batch, const Dims& contract) {
  Dims order = batch;
  Packed out;
  for (int64_t d = 0; d < t.type.rank(); ++d) {
    const auto is = [d](const Dims& dims) {
      return std::find(dims.begin(), dims.end(), d) != dims.end();
    };
    const int64_t size = t.type.dims[static_cast<size_t>(d)];
    if (is(batch)) {
      out.batch *= size;
    } else if (is(contract)) {
      out.k *= size;
    } else {
      out.rows *= size;
      order.push_back(d);
    }
  }
  order.insert(order.end(), contract.begin(), contract.end());
  Dims sizes, steps, at(order.size(), 0);
  const Dims strides = row_major_strides(t.type.dims);
  for (const int64_t d : order) {
    sizes.push_back(t.type.dims[static_cast<size_t>(d)]);
    steps.push_back(strides[static_cast<size_t>(d)]);
  }
  const std::vector<float> in = load_floats(t);
  out.values.resize(in.size());
  int64_t from = 0;
  for (float& v : out.values) {
    v = in[static_cast<size_t>(from)];
    for (size_t d = order.size(); d-- > 0;) {
      from += steps[d];
      if (++at[d] < sizes[d]) {
        break;
      }
      from -= steps[d] * sizes[d];
      at[d] = 0;
    }
  }
  return out;
}

void round_to_bf16(std::vector<float>& values) {
  for (float& v : values) {
    v = spec::bf16_to_f32(spec::bf16_from_f32(v));
  }
}

float double_sum(const float* a, const float* b, size_t k) {
  double sum = 0;
  for (size_t i = 0; i < k; ++i) {
    sum += static_cast<double>(a[i]) * b[i];
  }
  return canonical(spec::host_narrow(sum));
}

Tensor integer_dot(const Op& op, const Tensors& in);

}  // namespace

Tensor dot(const Op& op, const Tensors& operands, const EvalOptions& options) {
  const auto& a = op.as<DotAttrs>();
  if (!is_float(operands[0]->type.elem) || !is_float(operands[1]->type.elem)) {
    return integer_dot(op, operands);
  }
  Packed l = pack(*operands[0], a.lhs_batch, a.lhs_contract);
  Packed r = pack(*operands[1], a.rhs_batch, a.rhs_contract);
  // Precision high and highest come close to unrounded operands.
  const bool one_pass = a.lhs_precision == Precision::kDefault &&
                        a.rhs_precision == Precision::kDefault &&
                        options.dots != DotMode::kUnrounded;
  if (one_pass) {
    round_to_bf16(l.values);
    round_to_bf16(r.values);
  }
  Tensor out = make_tensor(op.type());
  std::vector<float> values;
  values.reserve(static_cast<size_t>(out.type.count()));
  const auto k = static_cast<size_t>(l.k);
  for (int64_t b = 0; b < l.batch; ++b) {
    for (int64_t m = 0; m < l.rows; ++m) {
      const float* x = l.values.data() + static_cast<size_t>(b * l.rows + m) * k;
      for (int64_t n = 0; n < r.rows; ++n) {
        const float* y = r.values.data() + static_cast<size_t>(b * r.rows + n) * k;
        values.push_back(one_pass && options.dots == DotMode::kMxuLaw
                             ? spec::mxu_sum(options.mxu, x, y, k)
                             : double_sum(x, y, k));
      }
    }
  }
  store_floats(values, out);
  return out;
}

namespace {

// Integers: exact wrapping sums, whatever the order. Mixed operands are not part of StableHLO as
// JAX emits it.
Tensor integer_dot(const Op& op, const Tensors& in) {
  if (is_float(in[0]->type.elem) || is_float(in[1]->type.elem) || is_float(op.type().elem)) {
    throw Error("operands of a float and an integer type are not supported",
                "stablehlo.dot_general", op.loc);
  }
  const auto& a = op.as<DotAttrs>();
  // Positions instead of values go through the packing; they are exact in f32 below 2^24.
  const auto packed = [&](const Tensor& t, const Dims& batch, const Dims& contract) {
    constexpr int64_t kExactInFloat = int64_t{1} << 24;
    if (t.type.count() > kExactInFloat) {
      throw Error("an integer operand is too large for the interpreter", "stablehlo.dot_general",
                  op.loc);
    }
    Tensor positions = make_tensor({Elem::kF32, t.type.dims});
    std::vector<float> p(static_cast<size_t>(t.type.count()));
    for (size_t i = 0; i < p.size(); ++i) {
      p[i] = static_cast<float>(i);
    }
    store_floats(p, positions);
    return pack(positions, batch, contract);
  };
  const Packed l = packed(*in[0], a.lhs_batch, a.lhs_contract);
  const Packed r = packed(*in[1], a.rhs_batch, a.rhs_contract);
  const auto x = load_ints(*in[0]);
  const auto y = load_ints(*in[1]);
  std::vector<int64_t> values;
  for (int64_t b = 0; b < l.batch; ++b) {
    for (int64_t m = 0; m < l.rows; ++m) {
      for (int64_t n = 0; n < r.rows; ++n) {
        uint64_t sum = 0;
        for (int64_t i = 0; i < l.k; ++i) {
          const auto at = [&](const Packed& p, int64_t row) {
            return static_cast<size_t>(p.values[static_cast<size_t>((b * p.rows + row) * p.k + i)]);
          };
          sum += static_cast<uint64_t>(x[at(l, m)]) * static_cast<uint64_t>(y[at(r, n)]);
        }
        values.push_back(static_cast<int64_t>(sum));
      }
    }
  }
  Tensor out = make_tensor(op.type());
  store_ints(values, out);
  return out;
}

}  // namespace
}  // namespace tpu::compiler::eval
