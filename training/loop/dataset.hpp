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
  /// `images`: the program's argument, [batch, ...]. Throws InvalidArgument when the files do not
  /// fit.
  Dataset(const TrainConfig& config, const driver::ParameterInfo& images);

  /// Throws InvalidArgument that names `path` when the examples cannot become another program's
  /// images, [batch, ...].
  void check_images(const driver::ParameterInfo& images, const std::string& path) const;

  /// What the order of examples depends on; `batch` is the caller's.
  DataOrder order(int64_t batch) const {
    return {split_seed_, labels_.size(), eval_.size(), batch};
  }
  /// Smallest and largest label of all examples.
  std::pair<int32_t, int32_t> label_range() const;

  size_t train_count() const { return train_.size(); }
  size_t eval_count() const { return eval_.size(); }

  /// Training examples in the order of an epoch (from 0 on).
  std::vector<uint32_t> epoch_order(uint32_t epoch) const;
  const std::vector<uint32_t>& eval_order() const { return eval_; }

  /// Examples `order[first .. first + count)` as argument `info`; rows beyond `count` are zero.
  driver::HostArray image_batch(const driver::ParameterInfo& info,
                                const std::vector<uint32_t>& order, size_t first,
                                size_t count) const;
  driver::HostArray label_batch(const driver::ParameterInfo& info,
                                const std::vector<uint32_t>& order, size_t first,
                                size_t count) const;

 private:
  void read_images(const TrainConfig& config, const driver::ParameterInfo& images);
  void read_labels(const TrainConfig& config);

  driver::HostArray images_;  // [examples, pixels]
  uint64_t pixels_ = 0;
  std::vector<int32_t> labels_;
  uint64_t split_seed_;
  std::vector<uint32_t> train_;
  std::vector<uint32_t> eval_;
};

}  // namespace tpu::training
