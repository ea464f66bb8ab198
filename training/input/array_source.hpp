// Examples from arrays: .npy, members of .npz, tensors of safetensors, raw bytes, or arrays in
// memory. The first dimension counts the examples. Files are mapped, not read whole, where their
// format allows it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "input/feature.hpp"
#include "input/source.hpp"
#include "tpu/types.hpp"

namespace tpu::input {

/// All examples of one feature.
struct Column {
  std::string name;  ///< for errors: file and member
  std::shared_ptr<const void> owner;
  driver::HostView view;
  std::function<void()> check = {};  ///< of a mapped file, as FileBytes::check()
};

/// By the file's suffix: .npy, .npz and .safetensors (`member`: which array of it; `feature.name`
/// when empty), else raw elements of `feature.stored_type`. Throws driver::Error InvalidArgument.
Column open_column(const std::string& path, const std::string& member, const Feature& feature);

Column memory_column(std::string name, driver::HostArray array);

/// One column for each feature, in the features' order. Throws driver::Error InvalidArgument when
/// their numbers of examples differ or there are none.
std::shared_ptr<const Source> array_source(std::vector<Column> columns);

}  // namespace tpu::input
