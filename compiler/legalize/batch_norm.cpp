// Batch normalisation as reductions and elementwise ops; map as its body on whole arrays. bf16 is
// computed in f32 and rounded once, f64 in f64.
#include <algorithm>

#include "legalize/builder.hpp"
#include "legalize/legalize.hpp"

namespace tpu::compiler::legalization {
namespace {

class BatchNorm {
 public:
  BatchNorm(Op& op, Rewriter& rw)
      : op_(op),
        b_(rw),
        feature_(op.as<BatchNormAttrs>().feature_dim),
        number_(op.type().elem == Elem::kF64 ? Elem::kF64 : Elem::kF32) {
    for (Value* v : op.operands) {
      in_.push_back(b_.convert(v, number_));
    }
    const Dims& dims = in_[0]->type.dims;
    for (int64_t d = 0; d < static_cast<int64_t>(dims.size()); ++d) {
      if (d != feature_) {
        rest_.push_back(d);
        count_ *= dims[static_cast<size_t>(d)];
      }
    }
    per_feature_ = {number_, {dims[static_cast<size_t>(feature_)]}};
  }

  // operands x, scale, offset
  std::vector<Value*> training() {
    Value* mean = mean_of(in_[0]);
    Value* centred = b_.sub(in_[0], wide(mean));
    Value* variance = mean_of(b_.mul(centred, centred));
    Value* y = scaled(centred, variance);
    return rounded({y, mean, variance});
  }

  // operands x, scale, offset, mean, variance
  std::vector<Value*> inference() {
    Value* centred = b_.sub(in_[0], wide(in_[3]));
    return rounded({scaled(centred, in_[4])});
  }

  // operands x, scale, mean, variance, gradient of y; results for x, scale, offset
  std::vector<Value*> grad() {
    Value* inverse = deviation(in_[3]);
    Value* scale = wide(inverse);
    Value* normal = b_.mul(b_.sub(in_[0], wide(in_[2])), scale);
    Value* for_offset = sum_of(in_[4]);
    Value* for_scale = sum_of(b_.mul(in_[4], normal));
    Value* share = b_.splat(per_feature_, 1.0 / static_cast<double>(count_));
    Value* of_scale = b_.mul(normal, wide(b_.mul(for_scale, share)));
    Value* rest = b_.add(wide(b_.mul(for_offset, share)), of_scale);
    Value* slope = wide(b_.mul(in_[1], inverse));
    Value* for_x = b_.mul(b_.sub(in_[4], rest), slope);
    return rounded({for_x, for_scale, for_offset});
  }

 private:
  Value* wide(Value* v) { return b_.broadcast(v, in_[0]->type.dims, {feature_}); }
  Value* sum_of(Value* v) { return b_.reduce(Kind::kAdd, v, b_.splat({number_, {}}, 0), rest_); }
  Value* mean_of(Value* v) {
    Value* count = b_.splat(per_feature_, static_cast<double>(count_));
    return b_.div(sum_of(v), count);
  }
  Value* deviation(Value* variance) {
    return b_.unary(Kind::kRsqrt,
                    b_.add(variance, b_.splat(per_feature_, op_.as<BatchNormAttrs>().epsilon)));
  }
  Value* scaled(Value* centred, Value* variance) {
    Value* offset = wide(in_[2]);
    return b_.add(b_.mul(centred, wide(b_.mul(deviation(variance), in_[1]))), offset);
  }
  std::vector<Value*> rounded(std::vector<Value*> values) {
    for (Value*& v : values) {
      v = b_.convert(v, op_.type().elem);
    }
    return values;
  }

  Op& op_;
  Builder b_;
  const int64_t feature_;
  const Elem number_;  // that is computed with
  std::vector<Value*> in_;
  Dims rest_;
  int64_t count_ = 1;
  Type per_feature_;
};

}  // namespace

std::vector<Value*> batch_norm(Op& op, Rewriter& rw) {
  BatchNorm norm(op, rw);
  switch (op.kind) {
    case Kind::kBatchNormTraining:
      return norm.training();
    case Kind::kBatchNormInference:
      return norm.inference();
    case Kind::kBatchNormGrad:
      return norm.grad();
    default:
      fail_unknown_kind(op, "the expansion of batch norms");
  }
}

std::vector<Value*> map(Op& op, Rewriter& rw) {
  return Builder(rw).apply(*op.regions[0], op.operands, op.type().dims);
}

}  // namespace tpu::compiler::legalization
