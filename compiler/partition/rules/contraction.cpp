// Rules of dot_general and convolution.
#include "partition/rules/rule_builder.hpp"

namespace tpu::compiler {

void dot_rule(RuleBuilder& b) {
  const auto& a = b.op().as<DotAttrs>();
  int64_t o = 0;
  for (size_t k = 0; k < a.lhs_batch.size(); ++k) {
    const int f = b.factor(b.size_in(0, a.lhs_batch[k]));
    b.in(0, a.lhs_batch[k], f);
    b.in(1, a.rhs_batch[k], f);
    b.out(0, o++, f);
  }
  for (size_t t = 0; t < 2; ++t) {
    const Dims& batch = t == 0 ? a.lhs_batch : a.rhs_batch;
    const Dims& contract = t == 0 ? a.lhs_contract : a.rhs_contract;
    for (int64_t d = 0; d < b.op().operand_type(t).rank(); ++d) {
      if (!contains(batch, d) && !contains(contract, d)) {
        b.pair(t, d, o++, b.size_in(t, d));
      }
    }
  }
  for (size_t k = 0; k < a.lhs_contract.size(); ++k) {
    const int f = b.factor(b.size_in(0, a.lhs_contract[k]), FactorKind::kReduce);
    b.in(0, a.lhs_contract[k], f);
    b.in(1, a.rhs_contract[k], f);
  }
}

// Groups are a loop of their own, the major one of the dimensions that hold them: feature groups of
// the input feature, batch groups of the input batch, both of the output feature.
void convolution_rule(RuleBuilder& b) {
  const auto& a = b.op().as<ConvAttrs>();
  const int64_t groups = a.feature_groups * a.batch_groups;  // one of them is 1
  if (groups > 1) {
    const int f = b.factor(groups);
    b.in(0, a.feature_groups > 1 ? a.input_feature : a.input_batch, f);
    b.in(1, a.kernel_output_feature, f);
    b.out(0, a.output_feature, f);
  }
  b.pair(0, a.input_batch, a.output_batch, b.size_out(0, a.output_batch));
  const int reduced = b.factor(b.size_in(1, a.kernel_input_feature), FactorKind::kReduce);
  b.in(0, a.input_feature, reduced);
  b.in(1, a.kernel_input_feature, reduced);
  b.pair(1, a.kernel_output_feature, a.output_feature, b.size_out(0, a.output_feature) / groups);
  for (size_t i = 0; i < a.input_spatial.size(); ++i) {
    const int64_t in = b.size_in(0, a.input_spatial[i]);
    const int64_t out = b.size_out(0, a.output_spatial[i]);
    const int64_t extent = (b.size_in(1, a.kernel_spatial[i]) - 1) * a.rhs_dilation[i] + 1;
    if (a.lhs_dilation[i] == 1 && a.pad_low[i] == 0 && a.pad_high[i] == 0 &&
        in_own_blocks(in, out, a.window_stride[i], extent)) {
      b.pair(0, a.input_spatial[i], a.output_spatial[i], out);
    }
  }
}

}  // namespace tpu::compiler
