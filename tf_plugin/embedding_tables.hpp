// The tables of TPUEmbedding on the cores. Their rows are divided between the cores; lookups and
// updates are programs of all cores (lowering/embedding.cpp).
#pragma once

#include <deque>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "embedding_programs.hpp"

namespace tpu::tensorflow {

/// The ids of a feature for the samples of one core.
struct FeatureIds {
  bool combined = false;  ///< EmbeddingIds
  std::vector<int32_t> ids, samples;
  std::vector<float> weights;
};

/// What a step has to do with the tables.
struct EmbeddingUse {
  struct Core {
    std::vector<FeatureIds> features;
    std::vector<pjrt::DeviceArrayPtr> ids, vectors, gradients;
  };
  std::vector<Core> cores;
  std::shared_ptr<EmbeddingPair> programs;  ///< of look_up()
  bool calls_host = false;                  ///< the step does, while it runs
};

/// Calls come from one thread at a time, and throw driver::Error. They wait for no step but one
/// that calls the host.
class EmbeddingTables {
 public:
  /// By array and table, all rows.
  using Arrays = std::vector<std::vector<std::span<float>>>;

  /// Zeros.
  explicit EmbeddingTables(std::shared_ptr<const Embeddings> embeddings);

  const std::shared_ptr<const Embeddings>& embeddings() const { return embeddings_; }

  void write(const Arrays& arrays);
  /// `refused`: the error of a read that did not start. Those in front of it are under way.
  std::vector<driver::Event> start_reads(const Arrays& arrays, std::exception_ptr& refused);

  /// The vectors of each core's ids.
  void look_up(EmbeddingUse& use);
  /// What does not fit fails here, in front of the step.
  void prepare_update(EmbeddingUse& use);
  /// With the gradients. If the step that gives them fails, the tables stay as they were.
  void update(const EmbeddingUse& use);

 private:
  /// By core, then all arrays of each table, as an update takes them.
  using Parts = std::vector<std::vector<pjrt::DeviceArrayPtr>>;
  struct Update {
    Parts before;
    std::vector<driver::Event> gradients;
    driver::Event done;
    bool calls_host = false;
  };

  void put_ids(EmbeddingUse& use, const EmbeddingProgram& lookup, size_t first) const;
  void take_back_failed();
  void check_there() const;

  const std::shared_ptr<const Embeddings> embeddings_;
  EmbeddingPrograms programs_;
  Parts parts_;
  std::deque<Update> updates_;  // those that may still fail, in their order
};

}  // namespace tpu::tensorflow
