// TPUEmbedding: configuration, transfer of tables, batches of ids, and what its operations in a
// step call. The tables are those of EmbeddingEngine.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "abi/executor.h"
#include "abi/ops.h"
#include "answer.hpp"
#include "embedding.hpp"
#include "errors.hpp"
#include "lowering_library.hpp"
#include "messages.hpp"

struct TpuEmbedding_TensorBatchFixedState {
  std::vector<std::string> combiners;  // by table
};

namespace tpu::tensorflow {
namespace {

enum DataType { kFloat = 1, kDouble = 2, kInt32 = 3, kInt64 = 9 };  // of TensorFlow

// Each host gives the others a text; there is one host.
void give_text(size_t* size, char** text) {
  constexpr char kText[] = "tpuboard";
  *text = ::strdup(kText);
  *size = sizeof kText - 1;
}

// A list of numbers, of any type that the operation takes.
template <typename To>
std::vector<To> numbers_of(const HostTensor& tensor) {
  const auto count = static_cast<size_t>(driver::element_count(tensor.dims));
  std::vector<To> numbers(count);
  const auto copy = [&]<typename From>(const From* from) {
    for (size_t i = 0; i < count; ++i) {
      numbers[i] = static_cast<To>(from[i]);
    }
  };
  switch (tensor.type) {
    case kFloat:
      copy(static_cast<const float*>(tensor.bytes));
      break;
    case kDouble:
      copy(static_cast<const double*>(tensor.bytes));
      break;
    case kInt32:
      copy(static_cast<const int32_t*>(tensor.bytes));
      break;
    case kInt64:
      copy(static_cast<const int64_t*>(tensor.bytes));
      break;
    default:
      pjrt::throw_invalid(fmt::format(
          "TPUEmbedding.enqueue: found numbers of type {}, expected s32, s64, f32 or f64",
          tensor.type));
  }
  return numbers;
}

/// Reads the ids of one feature for the samples of a core.
class IdReader {
 public:
  IdReader(const Embeddings& all, const EmbeddingFeature& feature, const std::string& combiner)
      : feature_(feature), table_(all.tables[feature.table]), combiner_(combiner) {}

  FeatureIds read(const HostTensor& indices, const HostTensor& ids, const HostTensor& weights) {
    const auto given = numbers_of<int64_t>(ids);
    FeatureIds read;
    for (const int64_t id : given) {
      if (id < 0 || id >= table_.rows) {
        fail(fmt::format("found the id {}, expected 0 to {}", id, table_.rows - 1));
      }
      read.ids.push_back(static_cast<int32_t>(id));
    }
    if (indices.dims.size() == 1 && indices.dims[0] == 0) {
      if (static_cast<int64_t>(given.size()) != feature_.samples()) {
        fail(fmt::format("found {} ids, expected {}", given.size(), feature_.samples()));
      }
      return read;
    }
    read.combined = true;
    auto factors = numbers_of<float>(weights);
    if (factors.empty()) {
      factors.assign(given.size(), 1.0F);
    }
    if (factors.size() != given.size()) {
      fail(fmt::format("found {} weights for {} ids", factors.size(), given.size()));
    }
    const std::vector<int64_t> samples =
        indices.dims.size() == 1 ? samples_of_rows(numbers_of<int64_t>(indices), given.size())
                                 : samples_of(indices, given.size());
    keep(samples, factors, read);
    return read;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    pjrt::throw_invalid(fmt::format("TPUEmbedding.enqueue, feature {} of table {}: {}",
                                    feature_.name, table_.name, what));
  }

  // Ragged ids; -1: behind the longest sequence.
  std::vector<int64_t> samples_of_rows(const std::vector<int64_t>& splits, size_t count) const {
    const std::vector<int64_t>& dims = feature_.dims;
    const bool sequence = dims.size() == 2;
    if (dims.size() > 2 || splits.size() != static_cast<size_t>(dims.at(0)) + 1 ||
        splits.front() != 0 || splits.back() != static_cast<int64_t>(count)) {
      fail(fmt::format("found {} row splits for {} ids, expected one more than the {} samples",
                       splits.size(), count, dims.empty() ? 0 : dims[0]));
    }
    if (!std::ranges::is_sorted(splits)) {  // then all are 0 to `count`
      fail("the row splits are not in order");
    }
    std::vector<int64_t> samples(count);
    for (size_t row = 0; row + 1 < splits.size(); ++row) {
      for (int64_t at = splits[row]; at < splits[row + 1]; ++at) {
        const int64_t place = at - splits[row];
        samples[static_cast<size_t>(at)] = !sequence ? static_cast<int64_t>(row)
                                           : place < dims[1]
                                               ? static_cast<int64_t>(row) * dims[1] + place
                                               : -1;
      }
    }
    return samples;
  }

  // Sparse ids: the coordinates of each, of which the last one counts the ids of a sample.
  std::vector<int64_t> samples_of(const HostTensor& indices, size_t count) const {
    const auto coordinates = numbers_of<int64_t>(indices);
    const std::vector<int64_t>& dims = feature_.dims;
    if (indices.dims.size() != 2 || indices.dims[0] != static_cast<int64_t>(count) ||
        indices.dims[1] != static_cast<int64_t>(dims.size()) + 1) {
      fail(fmt::format("found {} coordinates of {} ids, expected {} for each", coordinates.size(),
                       count, dims.size() + 1));
    }
    std::vector<int64_t> samples(count);
    for (size_t i = 0; i < count; ++i) {
      for (size_t d = 0; d < dims.size() && samples[i] >= 0; ++d) {
        const int64_t at = coordinates[i * (dims.size() + 1) + d];
        if (at < 0 || (d == 0 && at >= dims[d])) {
          fail(fmt::format("an id is at {}, expected 0 to {}", at, dims[d] - 1));
        }
        samples[i] = at < dims[d] ? samples[i] * dims[d] + at : -1;  // behind the longest sequence
      }
    }
    return samples;
  }

  // A combiner is a factor of each weight.
  void keep(const std::vector<int64_t>& samples, const std::vector<float>& factors,
            FeatureIds& read) const {
    std::vector<double> sums(static_cast<size_t>(feature_.samples()));
    for (size_t i = 0; i < samples.size(); ++i) {
      if (samples[i] >= 0) {
        const double factor = factors[i];
        sums[static_cast<size_t>(samples[i])] += combiner_ == "sqrtn" ? factor * factor : factor;
      }
    }
    const std::vector<int32_t> ids = std::move(read.ids);
    read.ids.clear();
    for (size_t i = 0; i < samples.size(); ++i) {
      if (samples[i] < 0) {
        continue;
      }
      const double sum = sums[static_cast<size_t>(samples[i])];
      const double divisor = combiner_ == "sum" ? 1 : combiner_ == "sqrtn" ? std::sqrt(sum) : sum;
      read.ids.push_back(ids[i]);
      read.samples.push_back(static_cast<int32_t>(samples[i]));
      read.weights.push_back(divisor == 0 ? 0 : static_cast<float>(factors[i] / divisor));
    }
  }

  const EmbeddingFeature& feature_;
  const EmbeddingTable& table_;
  const std::string& combiner_;
};

void enqueue(const TpuEmbeddingEngine_EnqueueTensorBatch_Params& params) {
  enum Mode { kInference = 1, kBackwardOnly = 3 };
  if (params.mode == kBackwardOnly) {
    pjrt::throw_unimplemented(
        "TPUEmbedding.enqueue with the mode of a backward pass alone is not supported; expected "
        "train or inference");
  }
  const std::shared_ptr<const Embeddings> embeddings = EmbeddingEngine::get().embeddings();
  const Embeddings& all = *embeddings;
  const size_t count = all.features.size();
  const std::vector<std::string>& combiners = params.fixed_state->combiners;
  if (params.sample_indices_tensors_size != count ||
      params.embedding_indices_tensors_size != count ||
      params.aggregation_weights_tensors_size != count || combiners.size() != all.tables.size()) {
    pjrt::throw_invalid(fmt::format(
        "TPUEmbedding.enqueue: found {} features and {} combiners, expected {} and {}",
        params.embedding_indices_tensors_size, combiners.size(), count, all.tables.size()));
  }
  std::vector<FeatureIds> features;
  for (size_t f = 0; f < count; ++f) {
    IdReader reader(all, all.features[f], combiners[all.features[f].table]);
    features.push_back(reader.read(host_tensor(params.sample_indices_tensors[f]),
                                   host_tensor(params.embedding_indices_tensors[f]),
                                   host_tensor(params.aggregation_weights_tensors[f])));
  }
  EmbeddingEngine::get().enqueue(params.local_device_ordinal, params.mode != kInference,
                                 std::move(features));
}

EmbeddingEngine::Arrays arrays_of(const TpuEmbeddingEngineParameters& params) {
  const std::shared_ptr<const Embeddings> embeddings = EmbeddingEngine::get().embeddings();
  const Embeddings& all = *embeddings;
  if (params.num_tables != all.tables.size()) {
    pjrt::throw_invalid(fmt::format("{} tables of TPUEmbedding, expected {}", params.num_tables,
                                    all.tables.size()));
  }
  EmbeddingEngine::Arrays arrays;
  for (FloatListRef** const by_table : params.parameters) {
    auto& tables = arrays.emplace_back();
    for (size_t t = 0; t < params.num_tables; ++t) {
      const FloatListRef* const list = by_table != nullptr ? by_table[t] : nullptr;
      tables.push_back(list != nullptr
                           ? std::span<float>(list->ptr, static_cast<size_t>(list->size))
                           : std::span<float>());
    }
  }
  return arrays;
}

void give_call(const char* name, TF_Status* status, const TpuSerializedProto& config,
               EmbeddingCall call, TpuSerializedProto* computation) {
  answer(name, status,
         [&] { *computation = new_message(embedding_call(embeddings_of(view_of(config)), call)); });
}

}  // namespace
}  // namespace tpu::tensorflow

using namespace tpu::tensorflow;  // NOLINT: the slots below are all of this file

extern "C" {

// TensorFlow ignores an error here, and then misses the result. ConfigureHost, which it calls
// later, reports what is wrong with the configuration.
void TpuEmbeddingEngine_ExecutePartitioner(TpuEmbeddingEngine_ExecutePartitioner_Params* params) {
  give_text(params->common_config_size, params->common_config);
}

void TpuEmbeddingEngine_ConfigureMemory(TpuEmbeddingEngine_ConfigureMemory_Params* params) {
  give_text(params->memory_config_size, params->memory_config);
}

void TpuEmbeddingEngine_CollateMemory(TpuEmbeddingEngine_CollateMemory_Params* params) {
  give_text(params->merged_memory_config_size, params->merged_memory_config);
}

void TpuEmbeddingEngine_ConfigureHost(TpuEmbeddingEngine_ConfigureHost_Params* params) {
  give_text(params->network_config_size, params->network_config);
  answer(__func__, params->status,
         [&] { EmbeddingEngine::get().configure(view_of(params->tpu_embedding_config)); });
}

void TpuEmbeddingEngine_ConnectHosts(TpuEmbeddingEngine_ConnectHosts_Params* /*params*/) {}

void TpuEmbeddingEngine_Finalize(TpuEmbeddingEngine_Finalize_Params* /*params*/) {}

void TpuEmbeddingEngine_IsInitialized(TpuEmbeddingEngine_IsInitialized_Params* params) {
  *params->is_tpu_embedding_initialized = EmbeddingEngine::get().configured();
}

void TpuEmbeddingEngine_WriteParameters(TpuEmbeddingEngineParameters* params, TF_Status* status) {
  answer(__func__, status, [&] { EmbeddingEngine::get().write(arrays_of(*params)); });
}

void TpuEmbeddingEngine_ReadParameters(TpuEmbeddingEngineParameters* params, TF_Status* status) {
  answer(__func__, status, [&] { EmbeddingEngine::get().read(arrays_of(*params)); });
}

TpuEmbedding_TensorBatchFixedState* TpuEmbeddingTensorBatchFixedState_Create(
    TpuEmbedding_TensorBatchFixedState_Create_Params* params) {
  TpuEmbedding_TensorBatchFixedState* state = nullptr;
  answer(__func__, params->status, [&] {
    auto made = std::make_unique<TpuEmbedding_TensorBatchFixedState>();
    made->combiners.assign(params->combiners, params->combiners + params->combiners_size);
    state = made.release();
  });
  return state;
}

void TpuEmbeddingTensorBatchFixedState_Destroy(TpuEmbedding_TensorBatchFixedState* state) {
  delete state;
}

void TpuEmbeddingEngine_EnqueueTensorBatch(TpuEmbeddingEngine_EnqueueTensorBatch_Params* params) {
  answer(__func__, params->status, [&] {
    try {
      enqueue(*params);
    } catch (...) {  // the other cores have the batch
      EmbeddingEngine::get().lose(StatusError(status_of_exception()));
      throw;
    }
  });
}

void TpuEmbeddingEngine_RecvActivationsComputation(
    TpuEmbeddingEngine_RecvActivationsComputation_Params* params) {
  give_call(__func__, params->status, params->tpu_embedding_config, EmbeddingCall::kReceive,
            params->xla_computation);
}

// Equal ids are found by the programs themselves.
void TpuEmbeddingEngine_RecvTPUEmbeddingDeduplicationDataComputation(
    TpuEmbeddingEngine_RecvTPUEmbeddingDeduplicationDataComputation_Params* params) {
  give_call(__func__, params->status, params->tpu_embedding_config, EmbeddingCall::kDeduplicate,
            params->xla_computation);
}

void TpuEmbeddingEngine_SendTPUEmbeddingGradientsComputation(
    TpuEmbeddingEngine_SendTPUEmbeddingGradientsComputation_Params* params) {
  give_call(__func__, params->status, params->tpu_embedding_config, EmbeddingCall::kSend,
            params->xla_computation);
}

}  // extern "C"
