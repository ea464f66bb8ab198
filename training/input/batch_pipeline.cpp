// Batches in work stand in a queue, in order. A worker takes a slice of rows of the first batch
// that has one left, or opens the next batch; next() takes the first batch (free order: any) whose
// slices are all done. One mutex guards the queue; reading and conversion run outside of it.
#include "input/batch_pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "check/checked.hpp"
#include "check/host_room.hpp"
#include "check/refuse.hpp"
#include "input/convert.hpp"
#include "tpu/error.hpp"

namespace tpu::input {

using driver::refuse;

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kSliceBytes = uint64_t{1} << 20;
constexpr uint64_t kLargeExample = uint64_t{1} << 15;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A batch in work.
struct Job {
  uint64_t number = 0;  // over all epochs
  Batch batch;
  std::vector<uint32_t> rows;  // examples
  uint64_t unclaimed = 0;      // first row that nobody has taken
  uint64_t unfinished = 0;     // rows
  uint64_t failed_row = std::numeric_limits<uint64_t>::max();
  std::exception_ptr failure;  // of that row, the first that failed
};

}  // namespace

class BatchPipeline::State {
 public:
  State(std::shared_ptr<const Source> source, std::vector<Feature> features,
        PipelineOptions options);
  ~State();

  bool next(Batch& batch);
  uint64_t batches_an_epoch() const { return batches_; }
  Position position() const;
  void restore(const Position& position);
  Rates rates() const;

 private:
  // What a worker has for itself.
  struct Worker {
    std::unique_ptr<Reader> reader;
    std::vector<Converter> converters;
    std::vector<Value> values;
  };

  void start();
  void stop();
  void work();
  Job* claimable();
  void enter_epoch();
  void open_job();
  void give_room(Batch& batch) const;
  void expect_rows();
  void run_rows(Worker& worker, Job& job, uint64_t first, uint64_t count);
  uint64_t run_row(Worker& worker, Job& job, uint64_t row) const;
  std::unique_ptr<Job> take_ready();
  void count_given(uint64_t number);
  bool is_given(uint64_t number) const;
  uint64_t rows_of(uint64_t batch) const;
  std::string made_with() const;
  void check_numbers(const Position& position) const;

  const std::shared_ptr<const Source> source_;
  const std::vector<Feature> features_;
  const PipelineOptions options_;
  Order order_;
  std::vector<Converter> converters_;  // copied by each worker
  uint64_t batches_ = 0;               // an epoch
  uint64_t end_ = 0;                   // batches of all epochs
  uint64_t slice_rows_ = 1;
  bool small_ = false;  // examples

  mutable std::mutex mutex_;
  std::condition_variable work_there_;
  std::condition_variable batch_ready_;
  std::deque<std::unique_ptr<Job>> jobs_;
  std::vector<Batch> spare_;       // whose memory is used again
  uint64_t opened_ = 0;            // batches before this one are in jobs_ or given
  uint64_t given_ = 0;             // batches before this one are given
  std::vector<uint64_t> beyond_;   // and these; sorted
  std::optional<uint64_t> epoch_;  // that order_ is in
  uint64_t expected_ = 0;          // examples of this epoch that the source was told of
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;

  const Clock::time_point started_ = Clock::now();
  uint64_t examples_read_ = 0;
  uint64_t bytes_read_ = 0;
  double waited_seconds_ = 0.0;
};

BatchPipeline::State::State(std::shared_ptr<const Source> source, std::vector<Feature> features,
                            PipelineOptions options)
    : source_(std::move(source)),
      features_(std::move(features)),
      options_(std::move(options)),
      order_(options_.order, source_->examples()) {
  if (features_.empty()) {
    refuse("no feature is named, expected at least one");
  }
  if (options_.batch == 0 || options_.threads == 0 || options_.prefetch == 0) {
    refuse("batch, threads and prefetch must be at least 1");
  }
  uint64_t bytes = 0;
  for (size_t i = 0; i < features_.size(); ++i) {
    bytes += converters_.emplace_back(features_[i], i).bytes();
  }
  const auto in_work =
      driver::checked_product(bytes * (uint64_t{options_.prefetch} + 1), options_.batch);
  driver::need_host_room(driver::need_fit(in_work, "batches of the input"), "batches of the input");
  if (order_.count() == 0) {
    refuse(fmt::format("the input is empty ({})", source_->identity()));
  }
  if (options_.remainder == Remainder::kDrop) {
    // As many on every shard: a core that has a batch more would wait for the others.
    batches_ = order_.smallest_shard() / options_.batch;
    if (batches_ == 0) {
      refuse(
          fmt::format("{} examples are fewer than a batch of {}; take a smaller batch, or "
                      "keep or pad the remainder",
                      order_.smallest_shard(), options_.batch));
    }
  } else {
    batches_ = (order_.count() + options_.batch - 1) / options_.batch;
  }
  // Epochs are numbered in 32 bits.
  const uint64_t most = uint64_t{1} << 32;
  end_ = (options_.epochs == 0 ? most : std::min(options_.epochs, most)) * batches_;
  slice_rows_ = std::clamp<uint64_t>(kSliceBytes / bytes, 1, options_.batch);
  small_ = bytes < kLargeExample;
}

BatchPipeline::State::~State() { stop(); }

void BatchPipeline::State::start() {
  for (unsigned i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this] { work(); });
  }
}

void BatchPipeline::State::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_there_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
  threads_.clear();
}

uint64_t BatchPipeline::State::rows_of(uint64_t batch) const {
  return std::min(options_.batch, order_.count() - batch * options_.batch);
}

void BatchPipeline::State::give_room(Batch& batch) const {
  const uint64_t rows = options_.remainder == Remainder::kKeep ? batch.examples : options_.batch;
  batch.arrays.resize(features_.size());
  for (size_t i = 0; i < features_.size(); ++i) {
    driver::HostArray& array = batch.arrays[i];
    array.dtype = features_[i].type;
    array.shape = features_[i].shape;
    array.shape.insert(array.shape.begin(), static_cast<int64_t>(rows));
    const uint64_t used = batch.examples * converters_[i].bytes();
    array.bytes.resize(rows * converters_[i].bytes());
    std::fill(array.bytes.begin() + static_cast<ptrdiff_t>(used), array.bytes.end(), std::byte{0});
  }
}

// The examples that have newly come near, so that the host reads their files ahead in large pieces.
// Small ones that are read as they are stored the host reads ahead by itself, with less work than
// by hints; large ones are each a read of their own.
void BatchPipeline::State::expect_rows() {
  if (options_.order.shuffle == 0 && small_) {
    return;
  }
  if (const std::optional<uint64_t> entered = order_.entered(); entered && *entered > expected_) {
    source_->expect(expected_, *entered - expected_);
    expected_ = *entered;
  }
}

void BatchPipeline::State::enter_epoch() {
  const uint64_t epoch = opened_ / batches_;
  if (epoch_ == epoch) {
    return;
  }
  order_.begin(static_cast<uint32_t>(epoch));
  order_.skip(opened_ % batches_ * options_.batch);
  epoch_ = epoch;
  expected_ = 0;
}

void BatchPipeline::State::open_job() {
  std::unique_ptr<Job> job = std::make_unique<Job>();
  if (!spare_.empty()) {
    job->batch = std::move(spare_.back());
    spare_.pop_back();
  }
  job->number = opened_;
  job->batch.epoch = opened_ / batches_;
  job->batch.number = opened_ % batches_;
  job->batch.examples = rows_of(job->batch.number);
  job->rows.resize(job->batch.examples);
  for (uint32_t& example : job->rows) {
    example = order_.next();
  }
  job->unfinished = job->rows.size();
  give_room(job->batch);
  expect_rows();
  ++opened_;
  jobs_.push_back(std::move(job));
}

// The first batch with rows that nobody has taken; null when there is none and no room for more.
Job* BatchPipeline::State::claimable() {
  for (const auto& job : jobs_) {
    if (job->unclaimed < job->rows.size()) {
      return job.get();
    }
  }
  while (jobs_.size() < options_.prefetch && opened_ < end_ && !failure_) {
    enter_epoch();
    if (!is_given(opened_)) {
      open_job();
      return jobs_.back().get();
    }
    order_.skip(rows_of(opened_ % batches_));  // given before restore()
    ++opened_;
  }
  return nullptr;
}

void BatchPipeline::State::work() {
  try {
    Worker worker{source_->reader(), converters_, std::vector<Value>(features_.size())};
    std::unique_lock lock(mutex_);
    for (;;) {
      Job* job = nullptr;
      work_there_.wait(lock, [&] { return stopping_ || (job = claimable()) != nullptr; });
      if (stopping_) {
        return;
      }
      const uint64_t first = job->unclaimed;
      const uint64_t count = std::min(slice_rows_, job->rows.size() - first);
      job->unclaimed += count;
      lock.unlock();
      run_rows(worker, *job, first, count);
      lock.lock();
    }
  } catch (...) {  // memory
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    batch_ready_.notify_all();
  }
}

uint64_t BatchPipeline::State::run_row(Worker& worker, Job& job, uint64_t row) const {
  const uint32_t example = job.rows[row];
  const AugmentKey key{options_.order.seed, static_cast<uint32_t>(job.batch.epoch), example};
  try {
    const uint64_t bytes = worker.reader->read(example, worker.values);
    for (size_t i = 0; i < worker.converters.size(); ++i) {
      Converter& converter = worker.converters[i];
      const uint64_t one = converter.bytes();
      converter.convert(worker.values[i], key,
                        std::span(job.batch.arrays[i].bytes).subspan(row * one, one));
    }
    return bytes;
  } catch (const BadExample& error) {
    refuse(fmt::format("{}: {}", source_->place(example), error.what()));
  }
}

void BatchPipeline::State::run_rows(Worker& worker, Job& job, uint64_t first, uint64_t count) {
  uint64_t bytes = 0;
  uint64_t row = first;
  std::exception_ptr failure;
  try {
    for (; row < first + count; ++row) {
      bytes += run_row(worker, job, row);
    }
    source_->check();
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  examples_read_ += row - first;
  bytes_read_ += bytes;
  if (failure && row < job.failed_row) {
    job.failed_row = row;
    job.failure = failure;
  }
  job.unfinished -= count;
  if (job.unfinished == 0) {
    batch_ready_.notify_all();
  }
}

// Null when none is ready.
std::unique_ptr<Job> BatchPipeline::State::take_ready() {
  const size_t looked_at = options_.free_order ? jobs_.size() : std::min<size_t>(1, jobs_.size());
  for (size_t i = 0; i < looked_at; ++i) {
    if (jobs_[i]->unfinished == 0) {
      std::unique_ptr<Job> job = std::move(jobs_[i]);
      jobs_.erase(jobs_.begin() + static_cast<ptrdiff_t>(i));
      return job;
    }
  }
  return nullptr;
}

void BatchPipeline::State::count_given(uint64_t number) {
  beyond_.insert(std::lower_bound(beyond_.begin(), beyond_.end(), number), number);
  while (!beyond_.empty() && beyond_.front() == given_) {
    beyond_.erase(beyond_.begin());
    ++given_;
  }
}

bool BatchPipeline::State::is_given(uint64_t number) const {
  return number < given_ || std::binary_search(beyond_.begin(), beyond_.end(), number);
}

bool BatchPipeline::State::next(Batch& batch) {
  if (threads_.empty()) {
    start();
  }
  std::unique_lock lock(mutex_);
  std::unique_ptr<Job> job;
  const auto ready = [&] {
    return failure_ != nullptr || given_ == end_ || (job = take_ready()) != nullptr;
  };
  if (!ready()) {
    const Clock::time_point asked = Clock::now();
    batch_ready_.wait(lock, ready);
    waited_seconds_ += seconds_since(asked);
  }
  if (job != nullptr && job->failure) {
    failure_ = job->failure;
  }
  if (failure_) {
    std::rethrow_exception(failure_);
  }
  if (job == nullptr) {
    return false;
  }
  std::swap(batch, job->batch);
  spare_.push_back(std::move(job->batch));
  count_given(job->number);
  lock.unlock();
  work_there_.notify_all();
  return true;
}

std::string BatchPipeline::State::made_with() const {
  constexpr const char* kNames[] = {"dropped", "kept", "padded"};
  return fmt::format("{}; {}; batches of {}, remainder {}", source_->identity(), order_.text(),
                     options_.batch, kNames[static_cast<size_t>(options_.remainder)]);
}

Position BatchPipeline::State::position() const {
  const std::lock_guard lock(mutex_);
  return {given_, beyond_, made_with()};
}

// Numbers beyond that do not ascend would keep the end from coming.
void BatchPipeline::State::check_numbers(const Position& position) const {
  if (position.next > end_) {
    refuse(
        fmt::format("the saved position of the input is damaged: next is batch {}, expected at "
                    "most {}",
                    position.next, end_));
  }
  uint64_t before = position.next;
  for (const uint64_t number : position.beyond) {
    if (number <= before || number >= end_) {
      refuse(
          fmt::format("the saved position of the input is damaged: batch {} in beyond, expected "
                      "one above {} and below {}",
                      number, before, end_));
    }
    before = number;
  }
}

void BatchPipeline::State::restore(const Position& position) {
  if (!threads_.empty()) {
    throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                        "the input has given batches already; restore before the first one");
  }
  if (position.made_with != made_with()) {
    refuse(
        fmt::format("the input cannot continue where another one stopped: that was [{}], "
                    "this is [{}]",
                    position.made_with, made_with()));
  }
  check_numbers(position);
  opened_ = given_ = position.next;
  beyond_ = position.beyond;
}

Rates BatchPipeline::State::rates() const {
  const std::lock_guard lock(mutex_);
  const auto ready = std::count_if(jobs_.begin(), jobs_.end(),
                                   [](const auto& job) { return job->unfinished == 0; });
  return {examples_read_,
          bytes_read_,
          seconds_since(started_),
          waited_seconds_,
          static_cast<unsigned>(ready),
          options_.prefetch};
}

BatchPipeline::BatchPipeline(std::shared_ptr<const Source> source, std::vector<Feature> features,
                             PipelineOptions options)
    : state_(std::make_unique<State>(std::move(source), std::move(features), std::move(options))) {}

BatchPipeline::~BatchPipeline() = default;

bool BatchPipeline::next(Batch& batch) { return state_->next(batch); }
uint64_t BatchPipeline::batches_an_epoch() const { return state_->batches_an_epoch(); }
Position BatchPipeline::position() const { return state_->position(); }
void BatchPipeline::restore(const Position& position) { state_->restore(position); }
Rates BatchPipeline::rates() const { return state_->rates(); }

}  // namespace tpu::input
