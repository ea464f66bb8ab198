// Batch normalisation by its definition, in double.
#include <algorithm>
#include <cmath>

#include "arith/host_f32.hpp"
#include "ir/elements.hpp"
#include "ir/lifted_body.hpp"

namespace tpu::compiler::eval {
namespace {

class BatchNorm {
 public:
  BatchNorm(const Op& op, const Tensors& in) : op_(op) {
    for (const Tensor* t : in) {
      in_.push_back(load_floats(*t));
    }
    const auto dim = static_cast<size_t>(op.as<BatchNormAttrs>().feature_dim);
    features_ = in[0]->type.dims[dim];
    pitch_ = row_major_strides(in[0]->type.dims)[dim];
    count_ = static_cast<double>(in[0]->type.count()) / static_cast<double>(features_);
  }

  std::vector<Tensor> training() {
    const auto& x = in_[0];
    std::vector<double> mean = sums([&](size_t i) { return double{x[i]}; });
    for (double& m : mean) {
      m /= count_;
    }
    std::vector<double> variance = sums([&](size_t i) {
      const double c = x[i] - mean[feature(i)];
      return c * c;
    });
    for (double& v : variance) {
      v /= count_;
    }
    return {normalised(mean, variance, in_[1], in_[2]), stored(mean, 1), stored(variance, 2)};
  }

  std::vector<Tensor> inference() {
    return {
        normalised({in_[3].begin(), in_[3].end()}, {in_[4].begin(), in_[4].end()}, in_[1], in_[2])};
  }

  std::vector<Tensor> grad() {
    const auto &x = in_[0], &scale = in_[1], &mean = in_[2], &dy = in_[4];
    const auto inverse = [&](size_t f) { return 1 / std::sqrt(in_[3][f] + epsilon()); };
    const auto centred = [&](size_t i) { return double{x[i]} - mean[feature(i)]; };
    const std::vector<double> sum = sums([&](size_t i) { return double{dy[i]}; });
    std::vector<double> product = sums([&](size_t i) { return dy[i] * centred(i); });
    std::vector<double> out(x.size());
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t f = feature(i);
      const double k = inverse(f);
      out[i] = scale[f] * k / count_ * (count_ * dy[i] - sum[f] - centred(i) * k * k * product[f]);
    }
    for (size_t f = 0; f < product.size(); ++f) {
      product[f] *= inverse(f);
    }
    return {stored(out, 0), stored(product, 1), stored(sum, 2)};
  }

 private:
  double epsilon() const { return op_.as<BatchNormAttrs>().epsilon; }
  size_t feature(size_t i) const {
    return static_cast<size_t>(static_cast<int64_t>(i) / pitch_ % features_);
  }

  template <typename Fn>
  std::vector<double> sums(Fn&& term) const {
    std::vector<double> out(static_cast<size_t>(features_), 0);
    for (size_t i = 0; i < in_[0].size(); ++i) {
      out[feature(i)] += term(i);
    }
    return out;
  }

  Tensor normalised(const std::vector<double>& mean, const std::vector<double>& variance,
                    const std::vector<float>& scale, const std::vector<float>& offset) const {
    std::vector<double> y(in_[0].size());
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t f = feature(i);
      y[i] = (in_[0][i] - mean[f]) / std::sqrt(variance[f] + epsilon()) * scale[f] + offset[f];
    }
    return stored(y, 0);
  }

  Tensor stored(const std::vector<double>& values, size_t result) const {
    Tensor out = make_tensor(op_.type(result));
    std::vector<float> rounded(values.size());
    // Processors differ in the sign of a NaN that they make.
    std::transform(values.begin(), values.end(), rounded.begin(),
                   [](double value) { return canonical(spec::host_narrow(value)); });
    store_floats(rounded, out);
    return out;
  }

  const Op& op_;
  std::vector<std::vector<float>> in_;
  int64_t features_ = 1, pitch_ = 1;
  double count_ = 1;
};

}  // namespace

std::vector<Tensor> batch_norm(const Op& op, const Tensors& in) {
  BatchNorm norm(op, in);
  switch (op.kind) {
    case Kind::kBatchNormTraining:
      return norm.training();
    case Kind::kBatchNormInference:
      return norm.inference();
    case Kind::kBatchNormGrad:
      return norm.grad();
    default:
      fail_unknown_kind(op, "the interpreter of batch norms");
  }
}

}  // namespace tpu::compiler::eval
