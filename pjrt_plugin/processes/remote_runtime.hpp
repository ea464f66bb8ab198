// The runtime of a process that uses the board of another one. Arrays and programs are numbers
// there.
#pragma once

#include "processes/remote_link.hpp"
#include "runtime/runtime.hpp"

namespace tpu::pjrt {

class RemoteRuntime : public Runtime {
 public:
  explicit RemoteRuntime(RemoteLink& link) : link_(link) {}

  driver::DeviceInfo device_info(int device) const override;
  DeviceArrayPtr put(int device, const driver::HostView& host) const override;
  DeviceArrayPtr put(int device, driver::DType dtype, const driver::Shape& shape,
                     std::shared_ptr<const std::vector<std::byte>> bytes,
                     const driver::Event& after) const override;
  DeviceArrayPtr zeros(int device, driver::DType dtype, const driver::Shape& shape) const override;
  DeviceArrayPtr copy(const DeviceArray& source, int device) const override;
  std::shared_ptr<const DeviceProgram> load(std::shared_ptr<const client::CompiledProgram> program,
                                            const std::vector<int>& devices) const override;
  driver::HostEvent make_event() const override { return driver::HostEvent::of_no_board(); }
  void refuse(const std::string& name, const std::vector<int>& members,
              const std::vector<int>& devices, const std::string& meets,
              const driver::Error& error) const override;
  void leave(const std::vector<int>& devices, const driver::Error& error) const override;
  std::shared_ptr<void> host_work() const override;
  void begin_profile() const override { link_.call(wire::BeginProfileT()); }
  std::string take_profile(bool goes_on) const override;

 private:
  RemoteLink& link_;
};

}  // namespace tpu::pjrt
