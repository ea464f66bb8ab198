// LocalArray: an array on the board of this process. It is there from the start, or comes with a
// launch that is not submitted yet; what is asked of it meanwhile is done when it is there.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/runtime.hpp"
#include "sync/mutex.hpp"

namespace tpu::pjrt {

class LocalArray final : public DeviceArray {
 public:
  explicit LocalArray(driver::Buffer buffer)
      : DeviceArray(buffer.device(), buffer.dtype(), buffer.shape()), buffer_(std::move(buffer)) {}
  /// Comes later: settle() or fail() is called once. `made` becomes ready behind that, with the
  /// contents or the error.
  LocalArray(int device, driver::DType dtype, const driver::Shape& shape, driver::Board board,
             driver::Event made)
      : DeviceArray(device, dtype, shape),
        later_(std::make_unique<Later>(Later{std::move(board), std::move(made), {}})) {}

  driver::Event ready() const override;
  driver::Event read(uint64_t first, std::span<std::byte> out) const override;
  /// Throws FailedPrecondition while it is not there.
  uint64_t address() const override;
  void discard() const override;

  /// Empty: it comes later. Throws the error of one that failed.
  std::optional<driver::Buffer> buffer() const;
  /// It is there, or has failed.
  bool settled() const;
  /// Calls `work` with the buffer, or null and the error: at once, or in the call that settles the
  /// array. Work is done in the order of the calls.
  using Work = std::function<void(const driver::Buffer* buffer, const driver::Error* error)>;
  void then(Work work) const;

  void settle(const driver::Buffer& buffer) const { end(&buffer, nullptr); }
  void fail(const driver::Error& error) const { end(nullptr, &error); }

  /// A launch that waits reads it: discard() takes effect behind that.
  void hold() const;
  void release() const;

 private:
  struct Later {
    driver::Board board;
    driver::Event made;
    std::vector<Work> work;
  };

  void end(const driver::Buffer* buffer, const driver::Error* error) const;

  mutable base::Mutex mutex_;  // a leaf lock
  mutable driver::Buffer buffer_ TPU_GUARDED_BY(mutex_);
  mutable std::unique_ptr<Later> later_ TPU_GUARDED_BY(mutex_);  // null: it is there
  mutable std::shared_ptr<const driver::Error> error_ TPU_GUARDED_BY(mutex_);
  mutable int held_ TPU_GUARDED_BY(mutex_) = 0;
  mutable bool discarded_ TPU_GUARDED_BY(mutex_) = false;
};

using LocalArrayPtr = std::shared_ptr<const LocalArray>;

/// Sets `host` when `event` is ready, with its error.
void pass_on(const driver::Event& event, const driver::HostEvent& host);
/// Ends `host` with the error; does nothing when the board has ended it.
void fail_event(const driver::HostEvent& host, const driver::Error& error);

}  // namespace tpu::pjrt
