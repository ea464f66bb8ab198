// Buffer: an array in the HBM of one core. Array: a global array as one Buffer on each core of a
// group, replicated or cut into boxes. Handles are cheap to copy; the memory is free when the last
// handle (or discard()) and the last command that uses it are gone. Handles may outlive their Board
// and be destroyed at any time; all calls may come from any thread.
//
// Every call on an empty handle throws InvalidArgument. Calls that move data throw
// FailedPrecondition when the board is closed or the buffer was donated or discarded, and
// Unavailable when the board has broken; they have changed nothing then.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tpu/event.hpp"
#include "tpu/types.hpp"

namespace tpu::driver {

class BoardImpl;
struct BufferState;

/// An array in the HBM of one core, or an empty handle.
class Buffer {
 public:
  Buffer() = default;

  bool valid() const { return state_ != nullptr; }  ///< false for an empty handle

  // What the buffer is; stays readable after discard() and after the board is closed.
  int device() const;          ///< DeviceInfo::id
  DType dtype() const;         ///< element type
  const Shape& shape() const;  ///< dimensions
  uint64_t bytes() const;      ///< dense

  /// False once it was donated to a launch, discarded, or lost by a fault.
  bool live() const;

  /// Where it lies in the HBM of its core; the same for buffers that share memory.
  /// FailedPrecondition when it is not live.
  uint64_t address() const;

  /// Ready when the contents are there; fails with the error of what should have made them.
  Event ready() const;

  /// Starts the copy to `out` (exactly bytes() long, else InvalidArgument; alive until the event is
  /// ready) after the events in `after`. What does not fit into the staging memory goes in pieces,
  /// and the call returns when the last of them is started; with an event in `after` that is not
  /// ready it returns at once. When it throws, `out` is not written any more.
  Event read(std::span<std::byte> out, const std::vector<Event>& after = {}) const;
  /// The same of the bytes from `first` on, as many as `out` has. InvalidArgument when the array
  /// ends before.
  Event read_part(uint64_t first, std::span<std::byte> out,
                  const std::vector<Event>& after = {}) const;

  /// Copies to the host and waits. Throws what read() and Event::wait() throw, and
  /// ResourceExhausted when the host has no room for the array.
  HostArray to_host() const;

  /// Gives the memory back, whatever handles there are: at once, or when what is in flight with it
  /// is over, which is not disturbed. Using the buffer afterwards is FailedPrecondition. Nothing
  /// happens when it is not live any more. Never waits for the board.
  void discard() const;

 private:
  friend struct Access;
  explicit Buffer(std::shared_ptr<BufferState> state) : state_(std::move(state)) {}
  std::shared_ptr<BufferState> state_;
};

/// Placement of a global array on a group of devices: box of `local` at `offsets[p]` for member p.
struct Layout {
  Shape local;                 ///< of each member's box
  std::vector<Shape> offsets;  ///< by member
  bool replicated = false;     ///< every member has the whole array
  /// By member: which term it has of a sum, the array. Empty: no sum. The host gives term 0, the
  /// others are zero; a sum cannot be read.
  std::vector<int> terms = {};
};

/// Takes the next bytes of an array.
using PieceSink = std::function<void(std::span<const std::byte> piece)>;

/// A global array as one Buffer on each member of a group, or an empty handle.
class Array {
 public:
  Array() = default;
  /// From parts that are there; checked when the array is used.
  Array(DType element_type, Shape global_shape, Layout placement, std::vector<Buffer> buffers)
      : dtype_(element_type),
        shape_(std::move(global_shape)),
        layout_(std::move(placement)),
        parts_(std::move(buffers)) {}

  bool valid() const { return !parts_.empty(); }               ///< false for an empty handle
  DType dtype() const { return dtype_; }                       ///< element type
  const Shape& shape() const { return shape_; }                ///< global
  const Layout& layout() const { return layout_; }             ///< where each part lies in it
  const std::vector<Buffer>& parts() const { return parts_; }  ///< by member

  /// Waits until all parts are there; throws the first failure.
  void wait() const;

  /// Starts the copy of the global array to `out` (its bytes exactly, alive until the event is
  /// ready), each box from the first core that has it, after the events in `after`; one event for
  /// all of it. Waits as Buffer::read() does.
  Event read(std::span<std::byte> out, const std::vector<Event>& after = {}) const;

  /// Global array on the host; of replicated parts the first one. Waits.
  HostArray to_host() const;

  /// As to_host(), and compares boxes that overlap bit by bit over all cores. Throws Internal that
  /// names `what`, core and element at the first difference.
  HostArray to_host_checked(const std::string& what) const;

  /// Hands the bytes of the global array to `sink`, front to back in pieces of at most 64 MiB, so
  /// that the host need not have room for all of it. Not empty, `compared` is the name under which
  /// boxes that overlap are compared as by to_host_checked(). Waits; `sink` is called by the same
  /// thread, with no lock held, and what it throws ends the call.
  void read_pieces(const PieceSink& sink, const std::string& compared = {}) const;

  /// Buffer::discard() of all parts.
  void discard() const;

 private:
  DType dtype_ = DType::kF32;
  Shape shape_;
  Layout layout_;
  std::vector<Buffer> parts_;
};

}  // namespace tpu::driver
