#include "embedding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <numeric>

#include "answer.hpp"
#include "compiled_program.hpp"
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

std::vector<int> first_devices(int cores) {
  std::vector<int> devices(static_cast<size_t>(cores));
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

// So that batches of nearly as many ids have one program.
int64_t rounded_up(size_t count) {
  return static_cast<int64_t>(std::bit_ceil(std::max(count, size_t{8})));
}

template <typename Element>
pjrt::DeviceArrayPtr put_list(int device, const exe::TensorT& wanted,
                              const std::vector<Element>& values, Element rest) {
  std::vector<Element> all = values;
  const auto count = static_cast<size_t>(driver::element_count(wanted.local_dims));
  all.resize(count, rest);
  return System::get().runtime().put(
      device, driver::HostView(static_cast<driver::DType>(wanted.elem), wanted.local_dims,
                               std::as_bytes(std::span(all))));
}

// The numbers of `whole` that a core has.
struct ArrayPart {
  const EmbeddingTable& table;
  size_t core = 0;
  size_t size = 0;  // of the core's array, which has rows behind the end of the last ones
  std::span<float> whole, own;
};

// Calls fn(part, its array) for all of `tables`, by core.
template <typename Tables, typename Fn>
void for_each_part(const Embeddings& all, const EmbeddingEngine::Arrays& arrays, Tables& tables,
                   const Fn& fn) {
  size_t array = 0;
  for (size_t t = 0; t < all.tables.size(); ++t) {
    const EmbeddingTable& table = all.tables[t];
    const auto size = static_cast<size_t>(all.rows_by_core(t) * table.width);
    for (size_t i = 0; i < table.arrays; ++i, ++array) {
      const std::span<float> whole = arrays.at(i).at(t);
      for (size_t core = 0; core < tables.size(); ++core) {
        const size_t begin = std::min(core * size, whole.size());
        const auto own = whole.subspan(begin, std::min(size, whole.size() - begin));
        fn(ArrayPart{table, core, size, whole, own}, tables[core][array]);
      }
    }
  }
}

}  // namespace

struct EmbeddingEngine::Batch {
  struct Core {
    bool enqueued = false, launched = false;
    std::vector<FeatureIds> features;
    std::vector<pjrt::DeviceArrayPtr> ids, vectors, gradients;
  };
  uint64_t number = 0;
  bool trains = false;
  bool looked_up = false;
  Forms forms;
  std::vector<Core> cores;

  bool all(bool Core::*has) const {
    return std::ranges::all_of(cores, [has](const Core& core) { return core.*has; });
  }
};

EmbeddingEngine& EmbeddingEngine::get() {
  static EmbeddingEngine* const engine = new EmbeddingEngine;  // threads may outlive statics
  return *engine;
}

void EmbeddingEngine::configure(std::string_view config) {
  Embeddings read = embeddings_of(config);
  const auto board = static_cast<int>(places().cores.size());
  if (read.cores > board) {
    pjrt::throw_invalid(
        fmt::format("TPUEmbedding on {} cores: the board has {} cores", read.cores, board));
  }
  const pjrt::Runtime& runtime = System::get().runtime();
  std::vector<std::vector<pjrt::DeviceArrayPtr>> tables(static_cast<size_t>(read.cores));
  for (int core = 0; core < read.cores; ++core) {
    for (size_t t = 0; t < read.tables.size(); ++t) {
      driver::Shape dims{read.rows_by_core(t), read.tables[t].width};
      if (read.cores > 1) {
        dims.insert(dims.begin(), 1);  // as arrays of replicated programs have it
      }
      for (size_t i = 0; i < read.tables[t].arrays; ++i) {
        tables[static_cast<size_t>(core)].push_back(runtime.zeros(core, driver::DType::kF32, dims));
      }
    }
  }
  const base::MutexLock lock(mutex_);
  drop(cancelled("TPUEmbedding was configured again"));
  lost_.reset();
  programs_.clear();
  enqueued_.assign(static_cast<size_t>(read.cores), over_);
  taken_ = enqueued_;
  tables_ = std::move(tables);
  embeddings_ = std::move(read);
}

bool EmbeddingEngine::configured() const {
  const base::MutexLock lock(mutex_);
  return embeddings_.has_value();
}

void EmbeddingEngine::reset() {
  const base::MutexLock lock(mutex_);
  drop(cancelled("the TPU system was initialized again"));
  lost_.reset();
  embeddings_.reset();
  tables_.clear();
  programs_.clear();
}

void EmbeddingEngine::lose(const driver::Error& why) {
  const base::MutexLock lock(mutex_);
  lose_all(why);
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
  if (!embeddings_) {
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
  if (!embeddings_) {
    fail_before(
        "TPUEmbedding was not configured: expected TPUEmbedding.build() or enqueue() behind "
        "initialize_tpu_system");
  }
  return *embeddings_;
}

Embeddings EmbeddingEngine::embeddings() const {
  const base::MutexLock lock(mutex_);
  return need();
}

void EmbeddingEngine::write(const Arrays& arrays) {
  const base::MutexLock lock(mutex_);
  for_each_part(need(), arrays, tables_, [](const ArrayPart& part, pjrt::DeviceArrayPtr& array) {
    const EmbeddingTable& table = part.table;
    if (part.whole.size() != static_cast<size_t>(table.rows * table.width)) {
      pjrt::throw_invalid(fmt::format("table {} of TPUEmbedding: found {} numbers, expected {}",
                                      table.name, part.whole.size(), table.rows * table.width));
    }
    std::vector<float> own(part.size);
    std::ranges::copy(part.own, own.begin());
    array = System::get().runtime().put(
        static_cast<int>(part.core),
        driver::HostView(driver::DType::kF32, array->shape(), std::as_bytes(std::span(own))));
  });
  lost_.reset();
}

// `refused`: the error of a read that did not start. Those in front of it are under way.
std::vector<driver::Event> EmbeddingEngine::start_reads(const Arrays& arrays,
                                                        std::exception_ptr& refused) const {
  std::vector<driver::Event> reads;
  try {
    for_each_part(need(), arrays, tables_, [&](const ArrayPart& part, const auto& array) {
      if (!part.own.empty()) {
        reads.emplace_back();  // so that none is lost that was started
        reads.back() = array->read(0, std::as_writable_bytes(part.own));
      }
    });
  } catch (...) {
    refused = std::current_exception();
  }
  return reads;
}

// A step of another thread donates the arrays. So all reads start before the next one.
void EmbeddingEngine::read(const Arrays& arrays) const {
  std::vector<driver::Event> reads;
  std::exception_ptr refused;
  {
    const base::MutexLock lock(mutex_);
    reads = start_reads(arrays, refused);
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
    batch->cores.resize(tables_.size());
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
  batch->cores[at].features = std::move(features);
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
  if (dropped != dropped_) {
    throw driver::Error(why_->code(), "the batch of TPUEmbedding is lost: " + why_->message());
  }
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
    if (!batch->looked_up) {
      look_up(*batch);
    }
    if (gives_gradients) {
      program(true, batch->forms);  // what does not fit fails here, in front of the step
    }
    return batch;
  } catch (...) {
    if (dropped == dropped_) {
      lose_all(StatusError(status_of_exception()));
    }
    throw;
  }
}

const std::vector<pjrt::DeviceArrayPtr>& EmbeddingEngine::vectors_of(const Batch& batch, int core) {
  return batch.cores.at(static_cast<size_t>(core)).vectors;
}

const EmbeddingEngine::Program& EmbeddingEngine::program(bool update, const Forms& forms) {
  Program& program = programs_[{update, forms}];
  if (program.loaded) {
    return program;
  }
  const auto working = System::get().runtime().host_work();
  const std::string hlo = embedding_program(need(), update, forms);
  const std::vector<int> devices = first_devices(need().cores);
  program.compiled = client::compile_program(
      std::as_bytes(std::span(hlo)), {.cores = devices.size() > 1 ? devices : std::vector<int>{},
                                      .import = {.replicas = need().cores, .partitions = 1}});
  program.loaded = System::get().runtime().load(program.compiled, devices);
  return program;
}

// `first`: the argument of the program that the first list is.
void EmbeddingEngine::put_ids(Batch& batch, const Program& lookup, size_t first) {
  const auto& wanted = lookup.compiled->executable->args;
  for (size_t core = 0; core < batch.cores.size(); ++core) {
    Batch::Core& own = batch.cores[core];
    const auto device = static_cast<int>(core);
    size_t at = first;
    for (size_t f = 0; f < batch.forms.size(); ++f) {
      const FeatureIds& ids = own.features[f];
      own.ids.push_back(put_list<int32_t>(device, *wanted.at(at++), ids.ids, -1));
      if (!batch.forms[f].combined) {
        continue;
      }
      std::vector<int32_t> samples = ids.samples;
      std::vector<float> weights = ids.weights;
      if (!ids.combined) {  // another core has several ids for a sample
        samples.resize(ids.ids.size());
        std::iota(samples.begin(), samples.end(), 0);
        weights.assign(ids.ids.size(), 1.0F);
      }
      own.ids.push_back(put_list<int32_t>(device, *wanted.at(at++), samples, 0));
      own.ids.push_back(put_list<float>(device, *wanted.at(at++), weights, 0));
    }
  }
}

void EmbeddingEngine::look_up(Batch& batch) {
  const Embeddings& all = need();
  for (size_t f = 0; f < all.features.size(); ++f) {
    EmbeddingIds form;
    size_t most = 0;
    for (const Batch::Core& core : batch.cores) {
      form.combined |= core.features[f].combined;
      most = std::max(most, core.features[f].ids.size());
    }
    form.count = form.combined ? rounded_up(most) : static_cast<int64_t>(most);
    batch.forms.push_back(form);
  }
  const Program& lookup = program(false, batch.forms);
  put_ids(batch, lookup, all.tables.size());
  pjrt::LaunchRequest request;
  for (size_t core = 0; core < batch.cores.size(); ++core) {
    pjrt::DeviceShare share{static_cast<int>(core), {}};
    size_t first = 0;
    for (const EmbeddingTable& table : all.tables) {
      share.arguments.push_back(tables_[core][first]);
      first += table.arrays;
    }
    share.arguments.insert(share.arguments.end(), batch.cores[core].ids.begin(),
                           batch.cores[core].ids.end());
    request.shares.push_back(std::move(share));
  }
  pjrt::LaunchResult result = lookup.loaded->launch(request);
  for (size_t core = 0; core < batch.cores.size(); ++core) {
    batch.cores[core].vectors = std::move(result.outputs[core]);
  }
  batch.looked_up = true;
}

void EmbeddingEngine::launched(const std::shared_ptr<Batch>& batch, int core,
                               std::vector<pjrt::DeviceArrayPtr> gradients) {
  const base::MutexLock lock(mutex_);
  const auto found = batches_.find(batch->number);
  if (found == batches_.end() || found->second != batch) {
    return;  // dropped
  }
  Batch::Core& own = batch->cores[static_cast<size_t>(core)];
  own.gradients = std::move(gradients);
  own.launched = true;
  if (!batch->all(&Batch::Core::launched)) {
    return;
  }
  batches_.erase(found);
  ++over_;
  changed_.notify_all();
  const auto gives = [](const Batch::Core& each) { return !each.gradients.empty(); };
  if (!std::ranges::all_of(batch->cores, gives)) {
    return;
  }
  try {
    update(*batch);
  } catch (...) {  // the variables have the step, and the tables do not
    lose_all(StatusError(status_of_exception()));
    throw;
  }
}

void EmbeddingEngine::update(const Batch& batch) {
  const Embeddings& all = need();
  const Program& update = program(true, batch.forms);
  pjrt::LaunchRequest request;
  for (size_t core = 0; core < batch.cores.size(); ++core) {
    const Batch::Core& own = batch.cores[core];
    pjrt::DeviceShare share{static_cast<int>(core), tables_[core]};
    size_t next = 0;
    for (size_t f = 0; f < all.features.size(); ++f) {
      for (int i = 0; i < (batch.forms[f].combined ? 3 : 1); ++i) {
        share.arguments.push_back(own.ids[next++]);
      }
      share.arguments.push_back(own.gradients.at(f));
    }
    for (size_t i = all.features.size(); i < own.gradients.size(); ++i) {
      share.arguments.push_back(own.gradients[i]);  // learning rates
    }
    request.shares.push_back(std::move(share));
  }
  pjrt::LaunchResult result = update.loaded->launch(request);
  for (size_t core = 0; core < batch.cores.size(); ++core) {
    tables_[core] = std::move(result.outputs[core]);
  }
}

}  // namespace tpu::tensorflow
