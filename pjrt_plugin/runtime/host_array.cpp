#include "runtime/host_array.hpp"

#include <cstring>
#include <utility>

#include "runtime/dense_view.hpp"

namespace tpu::pjrt {

DeviceArrayPtr HostArray::copy_of(const Runtime& runtime, int device,
                                  const driver::HostView& host) {
  std::vector<std::byte> own;
  const std::span<const std::byte> all = dense(host, own);
  auto bytes = std::make_shared<const std::vector<std::byte>>(
      own.empty() ? std::vector<std::byte>(all.begin(), all.end()) : std::move(own));
  return std::make_shared<const HostArray>(runtime, device, host.dtype, host.shape,
                                           std::move(bytes));
}

DeviceArrayPtr HostArray::copy_of(const Runtime& runtime, int device, const DeviceArray& source) {
  if (const auto* there = dynamic_cast<const HostArray*>(&source)) {
    return std::make_shared<const HostArray>(runtime, device, source.dtype(), source.shape(),
                                             there->bytes(), there->ready());
  }
  const auto bytes = std::make_shared<std::vector<std::byte>>(source.bytes());
  driver::Event ready = source.read(0, *bytes);
  // Without the array the copy goes on, and writes there.
  ready.on_ready([bytes](const std::shared_ptr<const driver::Error>&) {});
  return std::make_shared<const HostArray>(runtime, device, source.dtype(), source.shape(), bytes,
                                           std::move(ready));
}

DeviceArrayPtr HostArray::to_device(int device) const {
  return runtime_.put(device, dtype(), shape(), bytes(), ready_);
}

driver::Event HostArray::read(uint64_t first, std::span<std::byte> out) const {
  const Bytes from = bytes();
  const driver::HostEvent done = runtime_.make_event();
  ready_.on_ready([from, first, out, done](const std::shared_ptr<const driver::Error>& error) {
    try {
      if (error) {
        return done.fail(*error);
      }
      if (!out.empty()) {
        std::memcpy(out.data(), from->data() + first, out.size());
      }
      done.set();
    } catch (const driver::Error&) {
      // The board was closed, which has ended the event.
    }
  });
  return done.event();
}

uint64_t HostArray::address() const { return reinterpret_cast<uint64_t>(bytes()->data()); }

void HostArray::discard() const {
  Bytes gone;
  const base::MutexLock lock(mutex_);
  gone.swap(bytes_);
}

HostArray::Bytes HostArray::bytes() const {
  const base::MutexLock lock(mutex_);
  if (!bytes_) {
    throw driver::Error(driver::ErrorCode::kFailedPrecondition, "the array was deleted");
  }
  return bytes_;
}

DeviceArrayPtr on_device(const DeviceArrayPtr& array) {
  const auto* host = dynamic_cast<const HostArray*>(array.get());
  return host == nullptr ? array : host->to_device(array->device());
}

}  // namespace tpu::pjrt
