#include "embedding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "answer.hpp"
#include "errors.hpp"
#include "lowering_library.hpp"
#include "process_board.hpp"
#include "system.hpp"

namespace tpu::tensorflow {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail_before(const std::string& text) {
  throw driver::Error(driver::ErrorCode::kFailedPrecondition, text);
}

driver::Error cancelled(const std::string& why) { return {driver::ErrorCode::kCancelled, why}; }

}  // namespace

struct EmbeddingEngine::Batch {
  struct Core {
    bool enqueued = false, launched = false;
  };
  uint64_t number = 0;
  bool trains = false;
  bool looked_up = false, can_update = false;
  std::vector<Core> cores;
  EmbeddingUse use;  // of in_turn(), once all cores have enqueued it

  bool all(bool Core::*has) const {
    return std::ranges::all_of(cores, [has](const Core& core) { return core.*has; });
  }
};

EmbeddingEngine& EmbeddingEngine::get() {
  static EmbeddingEngine* const engine = new EmbeddingEngine;  // threads may outlive statics
  return *engine;
}

void EmbeddingEngine::configure(std::string_view config) {
  const auto read = std::make_shared<const Embeddings>(embeddings_of(config));
  const auto board = static_cast<int>(places().cores.size());
  if (read->cores > board) {
    pjrt::throw_invalid(
        fmt::format("TPUEmbedding on {} cores: the board has {} cores", read->cores, board));
  }
  auto tables = std::make_shared<EmbeddingTables>(read);
  const base::MutexLock lock(mutex_);
  drop(cancelled("TPUEmbedding was configured again"));
  lost_.reset();
  enqueued_.assign(static_cast<size_t>(read->cores), over_);
  taken_ = enqueued_;
  tables_ = std::move(tables);
}

bool EmbeddingEngine::configured() const {
  const base::MutexLock lock(mutex_);
  return tables_ != nullptr;
}

void EmbeddingEngine::reset() {
  const base::MutexLock lock(mutex_);
  drop(cancelled("the TPU system was initialized again"));
  lost_.reset();
  tables_.reset();
}

void EmbeddingEngine::lose(const driver::Error& why) {
  const base::MutexLock lock(mutex_);
  lose_all(why);
}

uint64_t EmbeddingEngine::losses() const {
  const base::MutexLock lock(mutex_);
  return dropped_;
}

void EmbeddingEngine::lose_since(uint64_t before, const driver::Error& why) {
  const base::MutexLock lock(mutex_);
  if (dropped_ == before) {
    lose_all(why);
  }
}

void EmbeddingEngine::cancel(const std::string& why) {
  const base::MutexLock lock(mutex_);
  const auto waits = [over = over_](uint64_t taken) { return taken != over; };
  if (!batches_.empty() || std::ranges::any_of(taken_, waits)) {
    lose_all(cancelled(why));
  }
}

void EmbeddingEngine::give_up(const std::shared_ptr<Batch>& batch, const driver::Error& why) {
  const base::MutexLock lock(mutex_);
  const auto found = batches_.find(batch->number);
  if (found != batches_.end() && found->second == batch) {
    lose_all(why);
  }
}

// Operations of the step that has failed may still come, core by core. If they counted, the next
// step would get ids of different batches.
void EmbeddingEngine::lose_all(const driver::Error& why) {
  if (!tables_) {
    return;
  }
  if (!lost_) {
    lost_ = why;
  }
  drop(why);
}

void EmbeddingEngine::check_not_lost() const {
  if (!lost_) {
    return;
  }
  // TensorFlow may report this one of the errors of a step: the program gets the type of the first.
  const bool cancelled = lost_->code() == driver::ErrorCode::kCancelled;
  throw driver::Error(
      cancelled ? driver::ErrorCode::kFailedPrecondition : lost_->code(),
      fmt::format("a batch of TPUEmbedding is lost ({}): load the tables (restore() of a "
                  "checkpoint) before the next enqueue(), or call initialize_tpu_system and make "
                  "another TPUEmbedding",
                  lost_->message()));
}

void EmbeddingEngine::check_not_dropped(uint64_t dropped) const {
  if (dropped != dropped_) {
    throw driver::Error(why_->code(), "the batch of TPUEmbedding is lost: " + why_->message());
  }
}

void EmbeddingEngine::drop(const driver::Error& why) {
  for (const uint64_t next : enqueued_) {
    over_ = std::max(over_, next);
  }
  batches_.clear();
  std::ranges::fill(enqueued_, over_);
  std::ranges::fill(taken_, over_);
  ++dropped_;
  why_ = why;
  changed_.notify_all();
}

const Embeddings& EmbeddingEngine::need() const {
  if (!tables_) {
    fail_before(
        "TPUEmbedding was not configured: expected TPUEmbedding.build() or enqueue() behind "
        "initialize_tpu_system");
  }
  return *tables_->embeddings();
}

std::shared_ptr<const Embeddings> EmbeddingEngine::embeddings() const {
  const base::MutexLock lock(mutex_);
  need();
  return tables_->embeddings();
}

// Calls work(the tables) without the mutex, if wanted() with it: the board can make the call wait,
// and callbacks of the board may enqueue meanwhile. Turns have the order of these calls.
template <typename Wanted, typename Work>
void EmbeddingEngine::in_turn(const Wanted& wanted, const Work& work) {
  const uint64_t own = turns_++;
  while (turns_over_ != own) {
    changed_.wait(mutex_);
  }
  std::exception_ptr failure;
  std::shared_ptr<EmbeddingTables> tables;  // may be configured again meanwhile
  try {
    if (wanted()) {
      tables = tables_;
      const base::MutexUnlock unlock(mutex_);
      work(*tables);
    }
  } catch (...) {
    failure = std::current_exception();
  }
  ++turns_over_;
  changed_.notify_all();
  if (failure) {
    std::rethrow_exception(failure);
  }
}

void EmbeddingEngine::write(const Arrays& arrays) {
  const base::MutexLock lock(mutex_);
  uint64_t dropped = 0;
  in_turn(
      [&]() TPU_REQUIRES(mutex_) {
        need();
        dropped = dropped_;
        return true;
      },
      [&](EmbeddingTables& tables) { tables.write(arrays); });
  if (dropped == dropped_) {  // else a batch was lost behind it
    lost_.reset();
  }
}

// A step of another thread donates the arrays. So all reads start before the next one.
void EmbeddingEngine::read(const Arrays& arrays) {
  std::vector<driver::Event> reads;
  std::exception_ptr refused;
  {
    const base::MutexLock lock(mutex_);
    in_turn(
        [this]() TPU_REQUIRES(mutex_) {
          need();
          return true;
        },
        [&](EmbeddingTables& tables) { reads = tables.start_reads(arrays, refused); });
  }
  for (const driver::Event& each : reads) {
    const std::shared_ptr<const driver::Error> error = each.wait_for_error();
    if (error && !refused) {
      refused = std::make_exception_ptr(*error);
    }
  }
  if (refused) {
    std::rethrow_exception(refused);
  }
}

std::shared_ptr<EmbeddingEngine::Batch> EmbeddingEngine::batch_of(uint64_t number) {
  std::shared_ptr<Batch>& batch = batches_[number];
  if (!batch) {
    batch = std::make_shared<Batch>();
    batch->number = number;
    batch->cores.resize(enqueued_.size());
    batch->use.cores.resize(enqueued_.size());
  }
  return batch;
}

void EmbeddingEngine::enqueue(int core, bool trains, std::vector<FeatureIds> features) {
  const base::MutexLock lock(mutex_);
  const Embeddings& all = need();
  check_not_lost();
  if (core < 0 || core >= all.cores || features.size() != all.features.size()) {
    pjrt::throw_invalid(fmt::format(
        "TPUEmbedding.enqueue of {} features on core {}: expected {} features, and a core below {}",
        features.size(), core, all.features.size(), all.cores));
  }
  const auto at = static_cast<size_t>(core);
  const std::shared_ptr<Batch> batch = batch_of(enqueued_[at]);
  const bool first = std::ranges::none_of(batch->cores, &Batch::Core::enqueued);
  if (!first && batch->trains != trains) {
    fail_before("TPUEmbedding.enqueue: expected the same value of 'training' on all cores");
  }
  batch->trains = trains;
  batch->use.cores[at].features = std::move(features);
  batch->cores[at].enqueued = true;
  ++enqueued_[at];
  changed_.notify_all();
}

std::shared_ptr<EmbeddingEngine::Batch> EmbeddingEngine::wait_for(uint64_t number) {
  const double limit = client::ProcessBoard::options().replica_seconds;  // 0: none
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(limit));
  const uint64_t dropped = dropped_;
  const auto there = [&]() TPU_REQUIRES(mutex_) {
    const auto found = batches_.find(number);
    return number == over_ && found != batches_.end() && found->second->all(&Batch::Core::enqueued);
  };
  while (dropped == dropped_ && !there()) {
    if (limit <= 0) {
      changed_.wait(mutex_);
    } else if (!changed_.wait_until(mutex_, end)) {
      throw driver::Error(driver::ErrorCode::kTimeout,
                          "a step waits for a batch of TPUEmbedding that not all cores have got: "
                          "expected TPUEmbedding.enqueue for each step and core "
                          "(TPUBOARD_REPLICA_LIMIT sets the time)");
    }
  }
  check_not_dropped(dropped);
  return batches_.at(number);
}

std::shared_ptr<EmbeddingEngine::Batch> EmbeddingEngine::take(int core, bool gives_gradients) {
  const base::MutexLock lock(mutex_);
  if (core >= need().cores) {
    pjrt::throw_invalid(fmt::format("a step with TPUEmbedding on core {}: expected one below {}",
                                    core, need().cores));
  }
  check_not_lost();
  const uint64_t number = taken_[static_cast<size_t>(core)]++, dropped = dropped_;
  try {
    std::shared_ptr<Batch> batch = wait_for(number);
    if (gives_gradients && !batch->trains) {
      fail_before(
          "TPUEmbedding.apply_gradients for a batch without training: expected "
          "TPUEmbedding.enqueue(..., training=True)");
    }
    look_up(batch, gives_gradients);
    return batch;
  } catch (...) {
    if (dropped == dropped_) {
      lose_all(StatusError(status_of_exception()));
    }
    throw;
  }
}

// The first core does it for all.
void EmbeddingEngine::look_up(const std::shared_ptr<Batch>& batch, bool gives_gradients) {
  const uint64_t dropped = dropped_;
  const auto done = [&] { return batch->looked_up && (batch->can_update || !gives_gradients); };
  if (done()) {
    return;
  }
  bool first = false;
  in_turn(
      [&]() TPU_REQUIRES(mutex_) {
        first = !batch->looked_up;
        return dropped == dropped_ && !done();
      },
      [&](EmbeddingTables& tables) {
        if (first) {
          tables.look_up(batch->use);
        }
        if (gives_gradients) {
          tables.prepare_update(batch->use);
        }
      });
  check_not_dropped(dropped);
  batch->looked_up = true;
  batch->can_update |= gives_gradients;
}

const std::vector<pjrt::DeviceArrayPtr>& EmbeddingEngine::vectors_of(const Batch& batch, int core) {
  return batch.use.cores.at(static_cast<size_t>(core)).vectors;
}

void EmbeddingEngine::launched(const std::shared_ptr<Batch>& batch, int core,
                               std::vector<pjrt::DeviceArrayPtr> gradients, bool calls_host) {
  const base::MutexLock lock(mutex_);
  const auto found = batches_.find(batch->number);
  if (found == batches_.end() || found->second != batch) {
    return;  // dropped
  }
  batch->use.cores[static_cast<size_t>(core)].gradients = std::move(gradients);
  batch->use.calls_host |= calls_host;
  batch->cores[static_cast<size_t>(core)].launched = true;
  if (!batch->all(&Batch::Core::launched)) {
    return;
  }
  batches_.erase(found);
  ++over_;
  changed_.notify_all();
  const auto gives = [](const EmbeddingUse::Core& each) { return !each.gradients.empty(); };
  if (std::ranges::all_of(batch->use.cores, gives)) {
    update(batch);
  }
}

// In front of the lookup of the next batch, which gets its turn behind this one.
void EmbeddingEngine::update(const std::shared_ptr<Batch>& batch) {
  const std::shared_ptr<EmbeddingTables> own = tables_;
  try {
    in_turn([&]() TPU_REQUIRES(mutex_) { return own == tables_; },
            [&](EmbeddingTables& tables) { tables.update(batch->use); });
  } catch (...) {  // the variables have the step, and the tables do not
    if (own == tables_) {
      lose_all(StatusError(status_of_exception()));
    }
    throw;
  }
}

}  // namespace tpu::tensorflow
