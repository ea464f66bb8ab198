// TPUEmbedding: the batches of ids, and the order in which steps use them and the tables
// (embedding_tables.hpp). A batch waits on the host until the step that uses it is launched. Then
// its lookup is launched in front of the step, and the update behind the last core's step, with the
// gradients that the step gives. Batches are used in their order.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "embedding_tables.hpp"
#include "sync/mutex.hpp"

namespace tpu::tensorflow {

class EmbeddingEngine {
 public:
  /// That of this process.
  static EmbeddingEngine& get();

  /// Tables of zeros. Throws driver::Error, also for what is not supported.
  void configure(std::string_view config);
  bool configured() const;
  /// Nothing is left.
  void reset();
  /// The step of a core fails with the current batch: the error of all that wait for it. The tables
  /// stay. The cores may no longer agree which batch is the next one. So batches are refused until
  /// the tables are configured or written.
  void lose(const driver::Error& why);
  /// How often batches were lost, or dropped for other reasons.
  uint64_t losses() const;
  /// As lose(), if that has not happened since losses() was `before`: the step may be one of tables
  /// of before.
  void lose_since(uint64_t before, const driver::Error& why);
  /// As lose(), if there is a batch, or a step that waits for one.
  void cancel(const std::string& why);
  /// Throws FailedPrecondition when nothing was configured.
  std::shared_ptr<const Embeddings> embeddings() const;

  using Arrays = EmbeddingTables::Arrays;
  void write(const Arrays& arrays);
  /// Waits until what was launched has run.
  void read(const Arrays& arrays);

  /// The next batch of this core. `trains`: its step gives gradients. Waits for nobody.
  void enqueue(int core, bool trains, std::vector<FeatureIds> features);

  struct Batch;
  /// The next batch of the core, looked up. Waits until all cores have it, and until the batches in
  /// front of it are over. An error loses the batch.
  std::shared_ptr<Batch> take(int core, bool gives_gradients);
  static const std::vector<pjrt::DeviceArrayPtr>& vectors_of(const Batch& batch, int core);
  /// No step of this core is launched with it. Does nothing if it was lost before.
  void give_up(const std::shared_ptr<Batch>& batch, const driver::Error& why);
  /// The step of a core was launched with it, and gives these arrays. `calls_host`: a part of the
  /// step runs there.
  void launched(const std::shared_ptr<Batch>& batch, int core,
                std::vector<pjrt::DeviceArrayPtr> gradients, bool calls_host);

 private:
  template <typename Wanted, typename Work>
  void in_turn(const Wanted& wanted, const Work& work) TPU_REQUIRES(mutex_);
  const Embeddings& need() const TPU_REQUIRES(mutex_);
  std::shared_ptr<Batch> batch_of(uint64_t number) TPU_REQUIRES(mutex_);
  std::shared_ptr<Batch> wait_for(uint64_t number) TPU_REQUIRES(mutex_);
  void look_up(const std::shared_ptr<Batch>& batch, bool gives_gradients) TPU_REQUIRES(mutex_);
  void update(const std::shared_ptr<Batch>& batch) TPU_REQUIRES(mutex_);
  void check_not_lost() const TPU_REQUIRES(mutex_);
  void check_not_dropped(uint64_t dropped) const TPU_REQUIRES(mutex_);
  void lose_all(const driver::Error& why) TPU_REQUIRES(mutex_);
  void drop(const driver::Error& why) TPU_REQUIRES(mutex_);

  mutable base::Mutex mutex_;  // not held in calls of the board
  base::CondVar changed_;
  std::shared_ptr<EmbeddingTables> tables_ TPU_GUARDED_BY(mutex_);  // null: not configured
  // Of in_turn(): how many there were, and how many of them are over.
  uint64_t turns_ TPU_GUARDED_BY(mutex_) = 0, turns_over_ TPU_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::shared_ptr<Batch>> batches_ TPU_GUARDED_BY(mutex_);  // by number
  std::vector<uint64_t> enqueued_, taken_ TPU_GUARDED_BY(mutex_);              // by core
  uint64_t over_ TPU_GUARDED_BY(mutex_) = 0;     // the number of the first batch that is not
  uint64_t dropped_ TPU_GUARDED_BY(mutex_) = 0;  // counts drop()
  std::optional<driver::Error> why_ TPU_GUARDED_BY(mutex_);   // of the last one
  std::optional<driver::Error> lost_ TPU_GUARDED_BY(mutex_);  // why batches are refused
};

/// What a launch of a step on one core has to do with the tables. Throws as EmbeddingEngine::take()
/// does.
class EmbeddingStep {
 public:
  EmbeddingStep(int core, size_t arguments, size_t results);
  EmbeddingStep(const EmbeddingStep&) = delete;
  EmbeddingStep& operator=(const EmbeddingStep&) = delete;
  /// A step that was not launched ends all that wait for it.
  ~EmbeddingStep();

  /// Addresses, for the launch.
  const std::vector<uint64_t>& arguments() const { return arguments_; }
  const std::vector<uint64_t>& results() const { return results_; }
  void launched(bool calls_host);

 private:
  void free_all();

  const int core_;
  std::shared_ptr<EmbeddingEngine::Batch> batch_;
  std::vector<uint64_t> arguments_, results_;
  bool launched_ = false;
};

}  // namespace tpu::tensorflow
