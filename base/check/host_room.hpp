// Room for arrays in host memory. The host promises more memory than it has and ends the process
// when it is used, so that what cannot fit is refused before.
#pragma once

#include <cstdint>
#include <string>

#include "tpu/types.hpp"

namespace tpu::driver {

/// Smaller arrays are not worth the look.
inline constexpr uint64_t kSmallHostBytes = uint64_t{64} << 20;

/// Bytes of memory that the host could give this process; the largest number when it does not tell.
uint64_t host_room();

/// Throws ResourceExhausted, naming `what`, when the host has no room for that many bytes.
void need_host_room(uint64_t bytes, const std::string& what);

/// An array of zero bits; `what` (empty: its type alone) is for the error. Throws as
/// need_host_room(), and InvalidArgument when the shape has no size.
HostArray host_array(DType dtype, const Shape& shape, const std::string& what = {});

}  // namespace tpu::driver
