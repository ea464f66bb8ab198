// All batches are launched before the first result is waited for.
#include "loop/evaluator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "loop/result_reads.hpp"

namespace tpu::training {

using driver::Array;
using driver::DType;
using driver::Executable;
using driver::HostArray;
using driver::HostView;
using driver::ParameterInfo;
using driver::RunOptions;
using driver::RunResult;

namespace {

// What a result is called when its sum is divided by the number of examples.
std::string mean_name(const std::string& name) {
  constexpr std::string_view kSum = "_sum";
  if (name == "correct") {
    return "accuracy";
  }
  return name.ends_with(kSum) ? name.substr(0, name.size() - kSum.size()) : name;
}

double scalar(const HostArray& array) {
  int32_t whole = 0;
  float real = 0;
  std::memcpy(&whole, array.bytes.data(), sizeof(whole));
  std::memcpy(&real, array.bytes.data(), sizeof(real));
  return array.dtype == DType::kI32 ? static_cast<double>(static_cast<float>(whole))
                                    : static_cast<double>(real);
}

}  // namespace

Evaluator::Evaluator(const Dataset& data, Executable program, Signature signature)
    : data_(data),
      program_(std::move(program)),
      signature_(std::move(signature)),
      infos_(data.infos()),
      batch_(eval_batch(signature_, program_)) {
  for (size_t i = 0; i < signature_.arguments.size(); ++i) {
    if (signature_.arguments[i].role == Role::kInput) {
      const size_t input = signature_.arguments[i].index;
      infos_[input] = program_.arguments()[i];
      data_.check(input, infos_[input]);
    }
  }
}

std::vector<std::string> Evaluator::metrics() const {
  std::vector<std::string> names;
  for (const std::string& result : signature_.metrics) {
    names.push_back(mean_name(result));
  }
  return names;
}

// Rows behind the last example are padding: zeros, and 0 in the mask.
RunResult Evaluator::launch(const std::vector<Array>& state, const input::Batch& batch) const {
  std::vector<Array> inputs;
  RunOptions options;
  for (size_t i = 0; i < signature_.arguments.size(); ++i) {
    const Place place = signature_.arguments[i];
    const ParameterInfo& info = program_.arguments()[i];
    if (place.role == Role::kState) {
      inputs.push_back(state[place.index]);
      options.keep.push_back(i);  // an eval program must not use up the state
    } else if (place.role == Role::kInput) {
      inputs.push_back(program_.put(i, batch.arrays[place.index]));
    } else {
      std::vector<float> mask(static_cast<size_t>(batch_), 0.0f);
      std::fill_n(mask.begin(), batch.examples, 1.0f);
      inputs.push_back(
          program_.put(i, HostView(info.dtype, info.shape, std::as_bytes(std::span(mask)))));
    }
  }
  return program_.run(inputs, options);
}

EvalResult Evaluator::evaluate(const std::vector<Array>& state) const {
  const std::unique_ptr<input::BatchPipeline> batches = data_.evaluation(infos_, batch_);
  std::vector<RunResult> results;
  std::vector<uint64_t> counts;
  for (input::Batch batch; batches->next(batch);) {
    results.push_back(launch(state, batch));
    counts.push_back(batch.examples);
  }
  std::vector<double> sums(signature_.metrics.size(), 0.0);
  for (size_t batch = 0; batch < results.size(); ++batch) {
    for (size_t i = 0; i < signature_.results.size(); ++i) {
      const Place place = signature_.results[i];
      if (place.role != Role::kMetric) {
        continue;
      }
      const Array& output = results[batch].outputs[i];
      if (output.shape().empty()) {
        sums[place.index] += scalar(output.to_host_checked(signature_.metrics[place.index]));
        continue;
      }
      ResultReads read;
      read.add(output);
      read.wait();
      const std::vector<double> values = read.numbers(0);
      for (size_t row = 0; row < counts[batch]; ++row) {
        sums[place.index] += values[row];
      }
    }
  }
  EvalResult result;
  const std::vector<std::string> names = metrics();
  for (size_t i = 0; i < sums.size(); ++i) {
    result.metrics.push_back({names[i], sums[i] / static_cast<double>(data_.eval_count())});
  }
  return result;
}

}  // namespace tpu::training
