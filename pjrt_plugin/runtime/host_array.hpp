// HostArray: an array in the host's memory that belongs to a device (memory kinds pinned_host and
// unpinned_host). It occupies no HBM. Copies from and to HBM are those of the runtime: the board's
// DMA over PCIe, in simulated time. Between arrays of the host the bytes are shared: nobody writes
// them once they are there.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/runtime.hpp"
#include "sync/mutex.hpp"

namespace tpu::pjrt {

class HostArray final : public DeviceArray {
 public:
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;

  /// `bytes` are there when `ready` is.
  HostArray(const Runtime& runtime, int device, driver::DType dtype, driver::Shape shape,
            Bytes bytes, driver::Event ready = {})
      : DeviceArray(device, dtype, std::move(shape)),
        runtime_(runtime),
        ready_(std::move(ready)),
        bytes_(std::move(bytes)) {}

  /// A dense copy of what the view shows.
  static DeviceArrayPtr copy_of(const Runtime& runtime, int device, const driver::HostView& host);
  /// What an array in HBM or of the host has, or will have.
  static DeviceArrayPtr copy_of(const Runtime& runtime, int device, const DeviceArray& source);

  /// The same in the HBM of a device.
  DeviceArrayPtr to_device(int device) const;

  driver::Event ready() const override { return ready_; }
  driver::Event read(uint64_t first, std::span<std::byte> out) const override;
  uint64_t address() const override;  ///< in this process
  void discard() const override;

 private:
  Bytes bytes() const;

  const Runtime& runtime_;
  const driver::Event ready_;
  mutable base::Mutex mutex_;                   // a leaf lock
  mutable Bytes bytes_ TPU_GUARDED_BY(mutex_);  // null: discarded
};

/// `array`, or its copy in the HBM of its device.
DeviceArrayPtr on_device(const DeviceArrayPtr& array);

}  // namespace tpu::pjrt
