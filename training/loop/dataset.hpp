// Examples of a training run: files in, split, order of epochs, batches as the program wants them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "loop/train_config.hpp"
#include "tpu/executable.hpp"

namespace tpu::training {

class Dataset {
 public:
  /// `infos`: the arguments of the train program, [batch, ...], one for each input. Throws
  /// InvalidArgument when the files do not fit.
  Dataset(const TrainConfig& config, const std::vector<driver::ParameterInfo>& infos);

  /// Throws InvalidArgument that names the file when the examples cannot become another program's
  /// argument, [batch, ...].
  void check(size_t input, const driver::ParameterInfo& info) const;

  /// What the order of examples depends on; `batch` is the caller's.
  DataOrder order(int64_t batch) const {
    return {split_seed_, train_.size() + eval_.size(), eval_.size(), batch};
  }
  /// SHA-256 of all examples.
  std::string digest() const;
  /// Smallest and largest number of all examples, of an input of integers.
  std::pair<int64_t, int64_t> range(size_t input) const;

  size_t train_count() const { return train_.size(); }
  size_t eval_count() const { return eval_.size(); }

  /// Training examples in the order of an epoch (from 0 on).
  std::vector<uint32_t> epoch_order(uint32_t epoch) const;
  const std::vector<uint32_t>& eval_order() const { return eval_; }

  /// Examples `order[first .. first + count)` of an input as argument `info`; rows beyond `count`
  /// are zero.
  driver::HostArray batch(size_t input, const driver::ParameterInfo& info,
                          const std::vector<uint32_t>& order, size_t first, size_t count) const;

 private:
  // All examples of an input as the file has them, [examples, values].
  struct Column {
    InputConfig config;
    driver::HostArray array;
    uint64_t values = 0;  // of an example
  };

  void add_column(const InputConfig& config, const driver::ParameterInfo& info,
                  driver::HostArray array);
  void check_numbers(const Column& column, const driver::ParameterInfo& info) const;

  std::vector<Column> columns_;
  uint64_t split_seed_;
  uint64_t examples_ = 0;
  std::vector<uint32_t> train_;
  std::vector<uint32_t> eval_;
};

}  // namespace tpu::training
