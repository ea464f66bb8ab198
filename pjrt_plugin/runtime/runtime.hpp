// Runtime: what the handles of the interface need of a board, wherever that is: in this process
// (local_runtime.hpp). Arrays and programs are shared handles that may outlive the runtime; events
// are those of the driver. All calls may come from any thread, and throw driver::Error as the calls
// of the driver with the same names do; a call that throws has changed nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiled_program.hpp"
#include "tpu/tpu.hpp"

namespace tpu::pjrt {

/// An array in the memory of one device.
class DeviceArray {
 public:
  DeviceArray(int device, driver::DType dtype, driver::Shape shape)
      : device_(device),
        dtype_(dtype),
        shape_(std::move(shape)),
        bytes_(driver::byte_count(dtype_, shape_)) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  virtual ~DeviceArray() = default;

  int device() const { return device_; }
  driver::DType dtype() const { return dtype_; }
  const driver::Shape& shape() const { return shape_; }
  uint64_t bytes() const { return bytes_; }  ///< dense

  /// Ready when the contents are there; fails with the error of what should have made them.
  virtual driver::Event ready() const = 0;
  /// Starts the copy of the bytes from `first` on, as many as `out` has, which stays alive until
  /// the event is ready.
  virtual driver::Event read(uint64_t first, std::span<std::byte> out) const = 0;
  /// Where it lies in the HBM of its device.
  virtual uint64_t address() const = 0;
  /// Gives the memory back when what is in flight with it is over.
  virtual void discard() const = 0;

 private:
  const int device_;
  const driver::DType dtype_;
  const driver::Shape shape_;
  const uint64_t bytes_;
};

using DeviceArrayPtr = std::shared_ptr<const DeviceArray>;

/// What one device of a program is given.
struct DeviceShare {
  int device = 0;
  std::vector<DeviceArrayPtr> arguments;
};

struct LaunchRequest {
  /// By partition; or those of some devices of the program. Then the others bring theirs in calls
  /// of their own, and the launch is submitted with the last of them.
  std::vector<DeviceShare> shares;
  std::vector<size_t> keep;  ///< arguments that are not donated (RunOptions::keep)
  driver::HostCallHandler on_host_call;
  uint64_t trace_context = 0;
  /// The shares of one launch have the same name, and no other launch has it. Empty: launch number
  /// k of a device meets launch number k of the others.
  std::string meets = {};
};

/// What a launch gives before it has run, by share. The launch ends for all its devices at once, so
/// that the events of several shares may be one.
struct LaunchResult {
  std::vector<std::vector<DeviceArrayPtr>> outputs;
  std::vector<driver::Event> done;
};

/// A program on the devices that it was loaded for.
class DeviceProgram {
 public:
  DeviceProgram() = default;
  DeviceProgram(const DeviceProgram&) = delete;
  DeviceProgram& operator=(const DeviceProgram&) = delete;
  virtual ~DeviceProgram() = default;

  /// Number, types and shapes of the arguments are those of the program. Waits for no other call:
  /// what a launch needs of others can come later. The shares of a launch meet by its name, or by
  /// their number (LaunchRequest::meets); what is wrong with one of them fails all, by their
  /// events.
  virtual LaunchResult launch(const LaunchRequest& request) const = 0;
  /// Launches in flight are not disturbed.
  virtual void unload() const = 0;
};

/// Names in errors who works with a device: "process 1 (pid 1234: python3 train.py)".
using OwnerText = std::function<std::string(int device)>;

class Runtime {
 public:
  Runtime() = default;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  virtual ~Runtime() = default;

  /// With the present use of its memory.
  virtual driver::DeviceInfo device_info(int device) const = 0;

  virtual DeviceArrayPtr put(int device, const driver::HostView& host) const = 0;
  /// Of bytes that are there when `after` is ready; nobody writes them from then on.
  virtual DeviceArrayPtr put(int device, driver::DType dtype, const driver::Shape& shape,
                             std::shared_ptr<const std::vector<std::byte>> bytes,
                             const driver::Event& after) const = 0;
  virtual DeviceArrayPtr zeros(int device, driver::DType dtype,
                               const driver::Shape& shape) const = 0;
  /// `source` is an array of this runtime.
  virtual DeviceArrayPtr copy(const DeviceArray& source, int device) const = 0;

  /// On `devices`, in the order of the program's partitions. Does not wait for the board. Throws
  /// driver::Error (InvalidArgument) for devices that the board or the program does not have.
  virtual std::shared_ptr<const DeviceProgram> load(
      std::shared_ptr<const client::CompiledProgram> program,
      const std::vector<int>& devices) const = 0;

  virtual driver::HostEvent make_event() const = 0;

  /// These devices should bring their shares of a launch, and cannot: it fails for all. `name`: of
  /// the program, which need not be loaded; `members`: all its devices; `meets`: LaunchRequest's.
  virtual void refuse(const std::string& name, const std::vector<int>& members,
                      const std::vector<int>& devices, const std::string& meets,
                      const driver::Error& error) const = 0;
  /// Nobody works with these devices any more: launches that wait for them, or for others with
  /// them, fail with this error.
  virtual void leave(const std::vector<int>& devices, const driver::Error& error) const = 0;
  /// While the result lives, the host works for launches to come: nobody has waited too long.
  virtual std::shared_ptr<void> host_work() const = 0;

  /// Begins the profile of the steps from here on, once what was submitted is over.
  virtual void begin_profile() const = 0;
  /// The profile so far, as XSpace; empty: no step has run. Then it goes on with the next step, or
  /// ends.
  virtual std::string take_profile(bool goes_on) const = 0;
};

}  // namespace tpu::pjrt
