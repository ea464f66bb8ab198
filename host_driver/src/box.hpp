// Boxes of dense row-major arrays: cutting, pasting, comparing.
#pragma once

#include <optional>
#include <string>

#include "tpu/types.hpp"

namespace tpu::driver {

/// The box of `local` dimensions at `offset` of `global`. Throws InvalidArgument when it sticks out
/// or when the bytes of `global` do not match its type.
HostArray cut_box(const HostView& global, const Shape& offset, const Shape& local);

/// Writes `box` at `offset` of `global`.
void paste_box(HostArray& global, const HostArray& box, const Shape& offset);

struct Difference {
  Shape index;
  std::string left;  ///< bit pattern, hexadecimal
  std::string right;
};

/// First element whose bits differ; the arrays have the same type.
std::optional<Difference> first_difference(const HostArray& left, const HostArray& right);

}  // namespace tpu::driver
