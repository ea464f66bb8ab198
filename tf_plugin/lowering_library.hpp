// The library that lowers graphs, libtpuboard_tf-VERSION.so, for the TensorFlow of this process.
#pragma once

#include <string_view>

#include "lowering/lowered.hpp"

struct TF_Tensor;

namespace tpu::tensorflow {

/// Loads the library at the first call. Throws driver::Error: FailedPrecondition when it is missing
/// or was built for another version of TensorFlow than the process has, and what the lowering
/// failed with.
Lowered lower(std::string_view request);

/// An HLO module whose random numbers are functions of a seed, the last argument, if it has any.
/// Throws as lower().
Lowered seed(std::string_view module);

/// The host of a launch. Throws as lower().
std::shared_ptr<HostSide> host_side(const SE_OutsideCompilationParams& params);

/// Of a TPUEmbeddingConfiguration. These throw as lower(), also for what is not supported.
Embeddings embeddings_of(std::string_view config);
/// HloModuleProto: EmbeddingProgramFunction.
std::string embedding_program(const Embeddings& embeddings, bool update,
                              const std::vector<EmbeddingIds>& ids);
/// HloModuleProto.
std::string embedding_call(const Embeddings& embeddings, EmbeddingCall call);
HostTensor host_tensor(const TF_Tensor* tensor);

}  // namespace tpu::tensorflow
