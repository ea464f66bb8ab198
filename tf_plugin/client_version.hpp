// The TensorFlow that has loaded this library, and where its structs have their fields. abi/types.h
// has the structs of TensorFlow 2.20. Those of 2.19 differ in one place: a layout has three more
// lists behind the order of its dimensions. So what is in front of a layout, and that order, is in
// its place; what is behind them lies further on by the size of these lists, as does the next one
// of an array of shapes.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>

#include "abi/types.h"

namespace tpu::tensorflow {

inline constexpr char kTensorFlowLibrary[] = "libtensorflow_cc.so.2";

/// "2.20.0"; empty in a process without TensorFlow.
std::string client_version();
/// "2.20" of "2.20.0".
std::string minor_version(const std::string& version);

/// Throws driver::Error (FailedPrecondition) if the structs of this process's TensorFlow are not
/// known. Nothing is checked in a process without TensorFlow.
void check_interface();

/// Bytes of the lists that this process's TensorFlow has in a layout and abi/types.h has not.
size_t more_in_layout();

/// A field of a struct that is behind a layout of that struct.
template <typename Field>
Field& behind_layout(Field& field) {
  using Byte = std::conditional_t<std::is_const_v<Field>, const std::byte, std::byte>;
  return *reinterpret_cast<Field*>(reinterpret_cast<Byte*>(&field) + more_in_layout());
}

/// Sets all of a struct that has one layout to zero.
template <typename Struct>
void clear_with_layout(Struct& all) {
  std::memset(static_cast<void*>(&all), 0, sizeof all + more_in_layout());
}

}  // namespace tpu::tensorflow
