// Buffer: an array in the HBM of one core. Array: a global array as one Buffer on each core of a
// group, replicated or cut into boxes. Handles are cheap to copy; the memory is free when the last
// handle and the last command that uses it are gone. Handles must not be used after their Board is
// closed, but may be destroyed at any time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tpu/event.hpp"
#include "tpu/types.hpp"

namespace tpu::driver {

class BoardImpl;
class Box;
struct BufferState;

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::shared_ptr<BufferState> state) : state_(std::move(state)) {}

  bool valid() const { return state_ != nullptr; }
  int device() const;
  DType dtype() const;
  const Shape& shape() const;
  uint64_t bytes() const;

  /// False once it was donated to a launch or lost by a fault.
  bool live() const;

  /// Ready when the contents are there; fails with the error of what should have made them.
  Event ready() const;

  /// Starts the copy to `out` (exactly bytes() long, alive until the event is ready). What does not
  /// fit into the staging memory goes in pieces; the call returns when the last of them is started.
  /// When it throws, `out` is not written any more.
  Event read(std::span<std::byte> out) const;

  /// Copies to the host and waits.
  HostArray to_host() const;

  const std::shared_ptr<BufferState>& state() const { return state_; }

 private:
  std::shared_ptr<BufferState> state_;
};

/// Placement of a global array on a group of devices: box of `local` at `offsets[p]` for member p.
struct Layout {
  Shape local;
  std::vector<Shape> offsets;
  bool replicated = false;
};

class Array {
 public:
  Array() = default;
  Array(DType element_type, Shape global_shape, Layout placement, std::vector<Buffer> buffers)
      : dtype_(element_type),
        shape_(std::move(global_shape)),
        layout_(std::move(placement)),
        parts_(std::move(buffers)) {}

  bool valid() const { return !parts_.empty(); }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const Layout& layout() const { return layout_; }
  const std::vector<Buffer>& parts() const { return parts_; }

  /// Waits until all parts are there.
  void wait() const;

  /// Global array on the host; of replicated parts the first one.
  HostArray to_host() const;

  /// As to_host(), and compares boxes that overlap bit by bit over all cores. Throws Internal that
  /// names `what`, core and element at the first difference.
  HostArray to_host_checked(const std::string& what) const;

 private:
  std::vector<Box> boxes() const;
  HostArray gather(bool check, const std::string& what) const;

  DType dtype_ = DType::kF32;
  Shape shape_;
  Layout layout_;
  std::vector<Buffer> parts_;
};

}  // namespace tpu::driver
