// An array on the board of another process.
#pragma once

#include "processes/remote_link.hpp"
#include "runtime/runtime.hpp"

namespace tpu::pjrt {

class RemoteArray final : public DeviceArray {
 public:
  /// The other process knows it, or will when the call that makes it is over.
  RemoteArray(RemoteLink& link, uint64_t number, int device, driver::DType dtype,
              driver::Shape shape)
      : DeviceArray(device, dtype, std::move(shape)), link_(link), number_(number) {}
  ~RemoteArray() override;

  uint64_t number() const { return number_; }
  /// The call that makes it has failed.
  void forget() const { known_ = false; }

  driver::Event ready() const override;
  driver::Event read(uint64_t first, std::span<std::byte> out) const override;
  uint64_t address() const override;
  void discard() const override;

 private:
  RemoteLink& link_;
  const uint64_t number_;
  mutable bool known_ = true;
};

}  // namespace tpu::pjrt
