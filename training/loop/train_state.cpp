// Uploads of the state, and its way back to the host.
#include "loop/train_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "checkpoint/weights.hpp"
#include "checkpoint/whole_state.hpp"
#include "format/digest.hpp"
#include "loop/initial_state.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"

namespace tpu::training {

using driver::Array;
using driver::HostArray;
using driver::HostView;
using driver::ParameterInfo;
namespace {

// Of all of it or of some boxes.
bool has_copies(const Array& array) {
  uint64_t bytes = 0;
  for (const driver::Buffer& part : array.parts()) {
    bytes += part.bytes();
  }
  return bytes > driver::byte_count(array.dtype(), array.shape());
}

template <typename Read>
auto compared(int64_t step, const Read& read) {
  try {
    return read();
  } catch (const driver::ReplicasDiffer& differ) {
    throw CopiesDiffer(differ, step);
  }
}

}  // namespace

// The driver and the program are not wrong.
CopiesDiffer::CopiesDiffer(const driver::ReplicasDiffer& differ, int64_t step)
    : Error(driver::ErrorCode::kDataLoss, differ.message(), differ.place()), step_(step) {}

TrainState::TrainState(const TrainConfig& config, driver::Executable program, Signature signature,
                       bool has_data)
    : config_(config),
      program_(std::move(program)),
      signature_(std::move(signature)),
      has_data_(has_data) {}

std::vector<ParameterInfo> TrainState::infos() const {
  std::vector<ParameterInfo> infos;
  for (size_t i = 0; i < leaves(); ++i) {
    infos.push_back(program_.arguments()[argument(i)]);
  }
  return infos;
}

bool TrainState::live() const {
  return std::all_of(arrays_.begin(), arrays_.end(), [](const Array& leaf) {
    return std::all_of(leaf.parts().begin(), leaf.parts().end(),
                       [](const driver::Buffer& part) { return part.live(); });
  });
}

void TrainState::wait() const {
  for (const Array& leaf : arrays_) {
    leaf.wait();  // the time of the upload is no time of steps
  }
}

void TrainState::put(const std::vector<HostArray>& leaves) {
  for (size_t i = 0; i < leaves.size(); ++i) {
    arrays_.push_back(program_.put(argument(i), leaves[i]));
  }
  wait();
}

void TrainState::put_initial() {
  if (config_.state_from.empty()) {
    put_described();
    return;
  }
  put(load_state(config_.state_from, infos(),
                 [](const std::string& text) { spec::print(stderr, "tpuboard: {}\n", text); }));
}

// Leaf by leaf, and of one value as that value alone: tables may be larger than the host's memory.
void TrainState::put_described() {
  const std::vector<ParameterInfo> wanted = infos();
  std::map<size_t, HostArray> weights;
  if (!config_.weights.empty()) {
    weights = load_weights(config_.weights, config_.weights_map, wanted);
  }
  for (size_t i = 0; i < leaves(); ++i) {
    const Init& init = config_.init[i];
    const auto& [dtype, shape] = std::tie(wanted[i].dtype, wanted[i].shape);
    if (const auto given = weights.find(i); given != weights.end()) {
      arrays_.push_back(program_.put(argument(i), given->second));
    } else if (init.kind == InitKind::kZeros) {
      arrays_.push_back(program_.zeros(argument(i)));
    } else if (init.kind == InitKind::kOnes || init.kind == InitKind::kConstant) {
      const HostArray one = initial_leaf(init, dtype, {}, config_.seed, i);
      const std::vector<int64_t> strides(shape.size(), 0);
      arrays_.push_back(program_.put(argument(i), HostView(dtype, shape, one.bytes, strides)));
    } else {
      arrays_.push_back(
          program_.put(argument(i), initial_leaf(init, dtype, shape, config_.seed, i)));
    }
  }
  wait();
}

void TrainState::take_over(driver::RunResult& result) {
  for (size_t i = 0; i < leaves(); ++i) {
    arrays_[i] = std::move(result.outputs[*signature_.result({Role::kState, i})]);
  }
}

// As errors name it.
std::string TrainState::called(size_t leaf) const {
  const std::string& name = program_.arguments()[argument(leaf)].name;
  return name.empty() ? fmt::format("state leaf {}", leaf)
                      : fmt::format("state leaf {} ({})", leaf, name);
}

bool TrainState::has_replicas() const { return std::ranges::any_of(arrays_, has_copies); }

void TrainState::compare_replicas(int64_t step) const {
  const std::string front = fmt::format("run.compare_replicas: behind step {}, ", step);
  for (size_t i = 0; i < arrays_.size(); ++i) {
    if (has_copies(arrays_[i])) {
      compared(step, [&] {
        arrays_[i].read_pieces([](std::span<const std::byte>) {}, front + called(i));
      });
    }
  }
}

HostArray TrainState::leaf_on_host(size_t leaf, Replicas of, int64_t step) const {
  return has_data_ ? compared(step, [&] { return checked_leaf(leaf, of); })
                   : arrays_[leaf].to_host();
}

// With one replica: a second copy comes to the host, not all of them.
HostArray TrainState::checked_leaf(size_t leaf, Replicas of) const {
  const Array& array = arrays_[leaf];
  const std::string what = called(leaf);
  if (of == Replicas::kAll || !array.layout().replicated || array.parts().size() < 2) {
    return array.to_host_checked(what);
  }
  HostArray value = array.to_host();
  std::vector<std::byte> other(value.bytes.size());
  array.parts()[1 + compared_ % (array.parts().size() - 1)].read(other).wait();
  return other == value.bytes ? std::move(value) : array.to_host_checked(what);
}

std::string TrainState::digest(int64_t step) const {
  driver::Digest digest(driver::Digest::Zeros::kCounted);
  for (size_t i = 0; i < arrays_.size(); ++i) {
    digest.begin(arrays_[i].dtype(), arrays_[i].shape());
    compared(step, [&] {
      arrays_[i].read_pieces([&](std::span<const std::byte> piece) { digest.add_bytes(piece); },
                             has_data_ ? called(i) : std::string());
    });
  }
  return digest.finish();
}

std::vector<HostArray> TrainState::to_host(Replicas of, int64_t step) {
  std::vector<HostArray> values;
  for (size_t i = 0; i < arrays_.size(); ++i) {
    values.push_back(leaf_on_host(i, of, step));
  }
  ++compared_;
  return values;
}

}  // namespace tpu::training
