// Boxes of dense row-major arrays: cutting, pasting, comparing, whole or a range of bytes at a
// time.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "tpu/types.hpp"

namespace tpu::driver {

/// Throws InvalidArgument unless the view's bytes, or strides, are those of its dtype and shape.
void check_view(const HostView& host);

struct Difference {
  Shape index;       ///< in the box
  std::string left;  ///< bit pattern, hexadecimal
  std::string right;
};

/// The box of `local` dimensions at `offset` of an array of `global` dimensions. The bytes of a box
/// are those of a dense array of its dimensions.
class Box {
 public:
  /// Throws InvalidArgument when the box sticks out.
  Box(DType dtype, const Shape& global, const Shape& offset, const Shape& local)
      : Box(HostView(dtype, global, {}), offset, local) {}
  /// Of a view, which may have strides; its bytes are not looked at.
  Box(const HostView& global, const Shape& offset, const Shape& local);

  uint64_t bytes() const { return bytes_; }
  uint64_t global_bytes() const { return global_bytes_; }

  /// Bytes of the box from `first` on. `global` and `out` are as large as they must be.
  void cut(std::span<const std::byte> global, uint64_t first, std::span<std::byte> out) const;

  /// The other way round. With `origin` the global array begins that many bytes before `global`,
  /// which has room for all of `data`.
  void paste(std::span<std::byte> global, uint64_t first, std::span<const std::byte> data,
             uint64_t origin = 0) const;

  /// {first, end} of the bytes of the box that lie in bytes [first, end) of a dense global array.
  std::pair<uint64_t, uint64_t> range_within(uint64_t first, uint64_t end) const;

  /// First element of the box in `global` (left) whose bits differ from those in `box` (right),
  /// which are its bytes from `first` on; `origin` as for paste().
  std::optional<Difference> first_difference(std::span<const std::byte> global,
                                             std::span<const std::byte> box, uint64_t first = 0,
                                             uint64_t origin = 0) const;

 private:
  template <typename Run>
  void for_runs(uint64_t first, uint64_t bytes, Run run) const;
  uint64_t bytes_before(uint64_t place) const;

  uint64_t element_;
  uint64_t bytes_;
  uint64_t global_bytes_;
  Shape local_;
  size_t walked_ = 0;            // outer dimensions; all behind them lie in one run
  uint64_t run_bytes_ = 0;       // consecutive in the global array
  int64_t start_ = 0;            // of the box in the global array, in bytes
  std::vector<int64_t> stride_;  // bytes, of the dimensions walked
};

}  // namespace tpu::driver
