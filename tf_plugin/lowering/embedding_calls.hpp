// Operations of TPUEmbedding in a step: what they receive and send.
#pragma once

#include "absl/status/status.h"
#include "lowering/lowered.hpp"
#include "xla/hlo/ir/hlo_module.h"

namespace tpu::tensorflow {

/// What the custom calls of EmbeddingCall receive becomes arguments of the module, and what they
/// send becomes results: Lowered::embedding_arguments, embedding_results.
absl::Status move_embeddings(xla::HloModule& module, Lowered& lowered);

}  // namespace tpu::tensorflow
