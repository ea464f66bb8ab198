// The callback holds the memory: an event keeps its callbacks until it is set.
#include "loop/result_reads.hpp"

#include <cstring>
#include <numeric>

namespace tpu::training {

using driver::Array;
using driver::DType;
using driver::Error;

void ResultReads::add(const Array& array) {
  const auto size = static_cast<size_t>(driver::byte_count(array.dtype(), array.shape()));
  Read read{array.dtype(), std::make_shared<std::vector<std::byte>>(size), {}};
  read.ready = array.shape().empty() || array.layout().replicated
                   ? array.parts()[0].read(*read.bytes)
                   : array.read(*read.bytes);
  read.ready.on_ready([keep = read.bytes](const std::shared_ptr<const Error>&) {});
  reads_.push_back(std::move(read));
}

void ResultReads::add(driver::HostArray array) {
  reads_.push_back(
      {array.dtype, std::make_shared<std::vector<std::byte>>(std::move(array.bytes)), {}});
}

void ResultReads::wait() const {
  for (const Read& read : reads_) {
    read.ready.wait();
  }
}

std::vector<double> ResultReads::numbers(size_t index) const {
  const Read& read = reads_[index];
  std::vector<double> values;
  for (size_t at = 0; at < read.bytes->size(); at += sizeof(float)) {
    int32_t whole = 0;
    float real = 0;
    std::memcpy(&whole, read.bytes->data() + at, sizeof(whole));
    std::memcpy(&real, read.bytes->data() + at, sizeof(real));
    values.push_back(read.dtype == DType::kI32 ? static_cast<double>(whole)
                                               : static_cast<double>(real));
  }
  return values;
}

double ResultReads::mean(size_t index) const {
  const std::vector<double> values = numbers(index);
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace tpu::training
