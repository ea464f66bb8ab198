// Bytes of messages that the caller frees.
#pragma once

#include <algorithm>
#include <string_view>

#include "abi/types.h"

namespace tpu::tensorflow {

inline TpuSerializedProto new_message(std::string_view bytes) {
  char* const copy = new char[bytes.size()];
  std::ranges::copy(bytes, copy);
  return {copy, bytes.size()};
}

inline std::string_view view_of(const TpuSerializedProto& message) {
  return {message.bytes, message.size};
}

}  // namespace tpu::tensorflow
