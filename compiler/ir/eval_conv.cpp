// convolution on arrays, element by element: operands rounded to bf16 where the matrix unit takes
// them in one pass, sums in double, so free of the order in which kernels add.
#include <algorithm>

#include "arith/bf16.hpp"
#include "arith/host_f32.hpp"
#include "ir/elements.hpp"

namespace tpu::compiler::eval {
namespace {

class Convolution {
 public:
  Convolution(const Op& op, const Tensors& in, const EvalOptions& options)
      : a_(op.as<ConvAttrs>()),
        lhs_dims_(in[0]->type.dims),
        rhs_dims_(in[1]->type.dims),
        out_dims_(op.type().dims),
        lhs_strides_(row_major_strides(lhs_dims_)),
        rhs_strides_(row_major_strides(rhs_dims_)),
        lhs_(load_floats(*in[0])),
        rhs_(load_floats(*in[1])) {
    if (a_.lhs_precision == Precision::kDefault && a_.rhs_precision == Precision::kDefault &&
        options.dots != DotMode::kUnrounded) {
      for (std::vector<float>* values : {&lhs_, &rhs_}) {
        for (float& value : *values) {
          value = spec::bf16_to_f32(spec::bf16_from_f32(value));
        }
      }
    }
  }

  std::vector<float> run() const {
    std::vector<float> out;
    Dims at(out_dims_.size(), 0);
    int64_t count = 1;
    for (const int64_t dim : out_dims_) {
      count *= dim;
    }
    for (int64_t i = 0; i < count; ++i) {
      out.push_back(canonical(spec::host_narrow(element(at))));
      for (size_t d = at.size(); d-- > 0 && ++at[d] == out_dims_[d];) {
        at[d] = 0;
      }
    }
    return out;
  }

 private:
  static size_t of(int64_t dim) { return static_cast<size_t>(dim); }

  double element(const Dims& at) const {
    const int64_t features = rhs_dims_[of(a_.kernel_output_feature)];
    const int64_t feature = at[of(a_.output_feature)];
    const int64_t group = feature / (features / a_.feature_groups);
    const int64_t batches = lhs_dims_[of(a_.input_batch)] / a_.batch_groups;
    const int64_t batch =
        at[of(a_.output_batch)] + feature / (features / a_.batch_groups) * batches;
    const int64_t depth = rhs_dims_[of(a_.kernel_input_feature)];
    const int64_t lhs = batch * lhs_strides_[of(a_.input_batch)] +
                        group * depth * lhs_strides_[of(a_.input_feature)];
    const int64_t rhs = feature * rhs_strides_[of(a_.kernel_output_feature)];
    return window(at, 0, lhs, rhs, depth);
  }

  // Sum over the window's dimensions from `d` on.
  double window(const Dims& at, size_t d, int64_t lhs, int64_t rhs, int64_t depth) const {
    double sum = 0;
    if (d == a_.kernel_spatial.size()) {
      for (int64_t k = 0; k < depth; ++k) {
        sum += static_cast<double>(lhs_[of(lhs + k * lhs_strides_[of(a_.input_feature)])]) *
               rhs_[of(rhs + k * rhs_strides_[of(a_.kernel_input_feature)])];
      }
      return sum;
    }
    const int64_t taps = rhs_dims_[of(a_.kernel_spatial[d])];
    const int64_t size = lhs_dims_[of(a_.input_spatial[d])];
    const int64_t first = at[of(a_.output_spatial[d])] * a_.window_stride[d] - a_.pad_low[d];
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t place = first + tap * a_.rhs_dilation[d];
      if (place < 0 || place % a_.lhs_dilation[d] != 0 || place / a_.lhs_dilation[d] >= size) {
        continue;
      }
      const int64_t mirrored = a_.window_reversal[d] ? taps - 1 - tap : tap;
      sum += window(at, d + 1,
                    lhs + place / a_.lhs_dilation[d] * lhs_strides_[of(a_.input_spatial[d])],
                    rhs + mirrored * rhs_strides_[of(a_.kernel_spatial[d])], depth);
    }
    return sum;
  }

  const ConvAttrs& a_;
  const Dims lhs_dims_, rhs_dims_, out_dims_, lhs_strides_, rhs_strides_;
  std::vector<float> lhs_, rhs_;
};

}  // namespace

Tensor convolution(const Op& op, const Tensors& operands, const EvalOptions& options) {
  if (!is_float(op.type().elem)) {
    throw Error("a convolution of integers is not evaluated", source_name(op.kind), op.loc);
  }
  Tensor out = make_tensor(op.type());
  store_floats(Convolution(op, operands, options).run(), out);
  return out;
}

}  // namespace tpu::compiler::eval
