// Programs of TPUEmbedding's lookups and updates. They are compiled for the number of ids of each
// feature, which ragged and sparse batches change from step to step: sizes are rounded up, a
// program serves batches with fewer ids, too, and the least recently used ones are dropped.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "compiled_program.hpp"
#include "lowering/lowered.hpp"
#include "runtime/runtime.hpp"

namespace tpu::tensorflow {

/// By feature.
using EmbeddingForms = std::vector<EmbeddingIds>;

struct EmbeddingProgram {
  std::shared_ptr<const client::CompiledProgram> compiled;  ///< null: not made yet
  std::shared_ptr<const pjrt::DeviceProgram> loaded;
};

/// The two programs of a batch, which have the same lists of ids.
struct EmbeddingPair {
  EmbeddingForms forms;
  EmbeddingProgram lookup, update;
};

/// Calls come from one thread at a time.
class EmbeddingPrograms {
 public:
  explicit EmbeddingPrograms(std::shared_ptr<const Embeddings> embeddings)
      : embeddings_(std::move(embeddings)) {}

  /// For batches with so many ids. The pair that is given may have longer lists, of at most twice
  /// as many ids in all. It lives as long as the caller has it.
  std::shared_ptr<EmbeddingPair> pair_for(const EmbeddingForms& ids);
  /// Compiled and loaded by the first call, which throws driver::Error for what does not fit.
  const EmbeddingProgram& lookup(EmbeddingPair& pair) const;
  const EmbeddingProgram& update(EmbeddingPair& pair) const;

 private:
  void make(bool update, const EmbeddingForms& forms, EmbeddingProgram& program) const;

  const std::shared_ptr<const Embeddings> embeddings_;
  std::list<std::shared_ptr<EmbeddingPair>> recent_;  // the last one used in front
};

}  // namespace tpu::tensorflow
