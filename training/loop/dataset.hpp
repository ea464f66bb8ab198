// Examples of a training run: files in, split, order of epochs; batches as the programs want them
// come from pipelines, which read, shuffle and convert ahead of the steps. Arrays are in memory;
// records stay in their files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "input/batch_pipeline.hpp"
#include "input/convert.hpp"
#include "loop/train_config.hpp"
#include "tpu/executable.hpp"

namespace tpu::training {

class Dataset {
 public:
  /// `infos`: the arguments of the train program, [batch, ...], one for each input. Throws
  /// InvalidArgument when the files do not fit.
  Dataset(const TrainConfig& config, std::vector<driver::ParameterInfo> infos);

  /// Throws InvalidArgument that names the file when the examples cannot become another program's
  /// argument, [batch, ...].
  void check(size_t input, const driver::ParameterInfo& info) const;

  /// What the order of examples depends on; `batch` is the caller's.
  DataOrder order(int64_t batch) const {
    return {split_seed_, train_.size() + eval_.size(), eval_.size(), batch};
  }
  /// SHA-256 of all examples; of records, of their lengths and checksums.
  std::string digest() const;
  /// Smallest and largest number of all examples, of an input of integers in an array.
  std::pair<int64_t, int64_t> range(size_t input) const;

  size_t train_count() const { return train_.size(); }
  size_t eval_count() const { return eval_.size(); }
  const std::vector<uint32_t>& eval_order() const { return eval_; }

  /// Order of the training examples.
  input::OrderOptions train_order() const;
  /// Batches of all epochs, by input. Examples that do not fill a batch are left out.
  std::unique_ptr<input::BatchPipeline> training(int64_t batch, int64_t epochs) const;
  /// The held-out examples once. `infos`: the eval program's arguments, by input; of those that it
  /// does not take the train program's. Rows behind the last example are zero.
  std::unique_ptr<input::BatchPipeline> evaluation(const std::vector<driver::ParameterInfo>& infos,
                                                   int64_t batch) const;
  /// Of the train program, by input.
  const std::vector<driver::ParameterInfo>& infos() const { return infos_; }

 private:
  // All examples of an input as its file has them, [examples, values].
  struct Column {
    std::shared_ptr<const driver::HostArray> array;
    uint64_t values = 0;  // of an example
  };

  void open_arrays();
  void open_records();
  void add_column(const InputConfig& input, uint64_t values, driver::HostArray array);
  void check_numbers(size_t input) const;
  uint64_t stored_values(size_t input, const driver::ParameterInfo& info) const;
  input::Feature feature(size_t input, const driver::ParameterInfo& info, bool augment) const;

  const TrainConfig& config_;
  std::vector<driver::ParameterInfo> infos_;
  std::vector<Column> columns_;        // empty: records
  std::vector<driver::DType> stored_;  // element type, by input
  std::shared_ptr<const input::Source> source_;
  uint64_t split_seed_;
  uint64_t examples_ = 0;
  std::vector<uint32_t> train_;
  std::vector<uint32_t> eval_;
};

}  // namespace tpu::training
