// The rules of each style and what they rest on. "Traces": op profiles of ParaDnn's fully connected
// networks on v2-8 (docs/timing_truth.md), in bytes a parameter of a core's HBM and step.
#include "entry/style.hpp"

#include <algorithm>

namespace tpu::compiler {

StyleRules rules_of(Style style) {
  StyleRules rules;
  if (style == Style::kXla2023) {
    // Source: a maintainer of JAX on a report from a v3-8 with libtpu of June 2023 (jax issue
    // 16349): products of a matrix and a vector are in full f32, of two matrices in bf16. The
    // numbers of the report agree: of the same operands the product with two rows is to the bit
    // that of operands rounded to bf16, with one row each it is within 4e-5 of the product in f32
    // (bf16: 2 %). What is not known: docs/numerics.md, "Products with a vector".
    rules.vector_products_in_f32 = true;
  }
  if (style == Style::kXla2019) {
    // Source: weight-update sharding came to XLA in 2020 (Xu et al., "Automatic cross-replica
    // sharding of weight update in data-parallel training"); the traces' optimiser moves 40 bytes
    // for every parameter on every core. Programs of MLPerf training v0.6 (2019) already had it
    // (Kumar et al., "Scale MLPerf-0.6 models on Google TPU-v3 pods"): an option asks for it.
    rules.shard_updates = false;
    // Source: CrossShardOptimizer of TensorFlow sums every gradient by an op of its own
    // (tensorflow/contrib/tpu/python/tpu/tpu_optimizer.py), and the traces show that they stay so:
    // 12 us for each array and 0.082 ns for each parameter, whatever the width.
    rules.sums_together = false;
    // Inferred: RMSProp with momentum moves 28 bytes as loop fusions and 12 as a lone op: mean
    // square (reads 2, writes 1), momentum (3 and 1), parameter (2 and 1), each by itself. Of other
    // fusions with several results no trace tells.
    rules.many_results = false;
    // Inferred: the casts of gradients to f32 are part of the matmuls at every width.
    rules.epilogues_by_columns = true;
    // Inferred: matmuls move 12 bytes a parameter beside their activations, which is the weight in
    // f32 forward and backward and its gradient in f32; there is no class that would hold casts.
    rules.casts_in_memory = false;
    // Inferred: with 128 images a core, images lie in the lanes and features are padded to 8 only
    // (Cloud TPU's documentation on padding; the programs of MLPerf training v0.5 hand images over
    // as [height, width, features, images]). A feature of a tap is a vector of its own then, and a
    // tile is filled with features of any taps.
    rules.tiles_span_taps = true;
    // Inferred: the same bytes, also where a parameter has 4 MiB: every fusion reads its operands
    // from HBM and writes its result there. Operands of matmuls come in blocks beside the matmuls:
    // small batches of narrow networks run at the rate at which weights are read.
    rules.values_in_vmem = false;
    // Inferred: the times of all classes sum to the time of profiles without a pause: one op
    // follows the other, and no sum over the cores hides behind the backward pass.
    rules.overlap_kernels = false;
  }
  return rules;
}

const std::map<std::string, Style>& style_names() {
  static const std::map<std::string, Style> names = {
      {"best", Style::kBest}, {"xla2019", Style::kXla2019}, {"xla2023", Style::kXla2023}};
  return names;
}

std::string_view name_of(Style style) {
  const auto& names = style_names();
  return std::find_if(names.begin(), names.end(),
                      [&](const auto& entry) { return entry.second == style; })
      ->first;
}

}  // namespace tpu::compiler
