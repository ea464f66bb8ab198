// Batches from a source: order, reading and conversion by several threads, read ahead. The same
// options give the same batches, bit for bit, whatever the number of threads; a pipeline that was
// restored to a position goes on as the one that was left there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "input/feature.hpp"
#include "input/order.hpp"
#include "input/source.hpp"
#include "tpu/types.hpp"

namespace tpu::input {

/// What becomes of an epoch's last examples when they are fewer than a batch.
enum class Remainder : uint8_t {
  kDrop,
  kKeep,  ///< a smaller batch
  kPad,   ///< a whole batch, zeros behind Batch::examples
};

struct PipelineOptions {
  uint64_t batch = 1;
  Remainder remainder = Remainder::kDrop;
  uint64_t epochs = 0;  ///< 0: without end
  OrderOptions order = {};
  unsigned threads = 2;
  unsigned prefetch = 4;  ///< batches that are read or ready at a time
  /// Batches come as they are ready, not in order: nothing waits for a slow file. Each comes once.
  bool free_order = false;
};

struct Batch {
  std::vector<driver::HostArray> arrays;  ///< by feature, [batch, ...shape]
  uint64_t examples = 0;                  ///< that are real; fewer than rows with kPad only
  uint64_t epoch = 0;
  uint64_t number = 0;  ///< in the epoch
};

/// Where a pipeline stands, between two batches.
struct Position {
  uint64_t next = 0;             ///< batches before this one have been given, over all epochs
  std::vector<uint64_t> beyond;  ///< and these behind it (free order)
  std::string made_with;         ///< data and options, which must be the same

  /// One line of JSON; parse() throws driver::Error InvalidArgument.
  std::string text() const;
  static Position parse(const std::string& text);
};

/// Since the pipeline was made.
struct Rates {
  uint64_t examples = 0;  ///< read, given or not yet
  uint64_t bytes = 0;     ///< of their files
  double seconds = 0.0;
  double waited_seconds = 0.0;  ///< next() for a batch
  unsigned ready = 0;           ///< batches that wait for next(), of
  unsigned prefetch = 0;
};

class BatchPipeline {
 public:
  /// Throws driver::Error InvalidArgument: features that make no sense, no examples, fewer than a
  /// batch.
  BatchPipeline(std::shared_ptr<const Source> source, std::vector<Feature> features,
                PipelineOptions options);
  ~BatchPipeline();
  BatchPipeline(const BatchPipeline&) = delete;
  BatchPipeline& operator=(const BatchPipeline&) = delete;

  /// The next batch; false behind the last epoch. What `batch` held is used again: calling with the
  /// same object costs no memory. Throws driver::Error for an example that cannot be used (file,
  /// number, feature), in the place of its batch; every later call does too.
  bool next(Batch& batch);

  uint64_t batches_an_epoch() const;
  /// Behind the batches that next() has given.
  Position position() const;
  /// Before the first next(). Throws driver::Error InvalidArgument when data or options differ.
  void restore(const Position& position);
  Rates rates() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace tpu::input
