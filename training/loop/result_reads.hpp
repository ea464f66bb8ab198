// Small results of launches on their way to the host: losses and metrics. They are read into memory
// that lives as long as the reads, whatever happens to who waits for them.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "tpu/buffer.hpp"

namespace tpu::training {

class ResultReads {
 public:
  /// Starts the read of a scalar that is the same on all cores, or of an array of numbers of
  /// examples; f32 or i32.
  void add(const driver::Array& array);

  /// The same of one that is on the host.
  void add(driver::HostArray array);

  /// Waits for all of them. Throws what a launch failed with.
  void wait() const;
  /// After wait(): the numbers of the array that was added as number `index`.
  std::vector<double> numbers(size_t index) const;
  /// Their mean; of a scalar itself.
  double mean(size_t index) const;

 private:
  struct Read {
    driver::DType dtype;
    std::shared_ptr<std::vector<std::byte>> bytes;
    driver::Event ready;
  };
  std::vector<Read> reads_;
};

}  // namespace tpu::training
