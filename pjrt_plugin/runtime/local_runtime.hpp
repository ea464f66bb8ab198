// The runtime of a process that has the board itself.
#pragma once

#include "runtime/runtime.hpp"

namespace tpu::pjrt {

class LocalRuntime : public Runtime {
 public:
  explicit LocalRuntime(driver::Board board) : board_(std::move(board)) {}

  driver::DeviceInfo device_info(int device) const override;
  DeviceArrayPtr put(int device, const driver::HostView& host) const override;
  DeviceArrayPtr put(int device, driver::DType dtype, const driver::Shape& shape,
                     std::shared_ptr<const std::vector<std::byte>> bytes,
                     const driver::Event& after) const override;
  DeviceArrayPtr zeros(int device, driver::DType dtype, const driver::Shape& shape) const override;
  DeviceArrayPtr copy(const DeviceArray& source, int device) const override;
  std::shared_ptr<const DeviceProgram> load(std::shared_ptr<const client::CompiledProgram> program,
                                            const std::vector<int>& devices) const override;
  driver::HostEvent make_event() const override { return board_.make_event(); }
  void begin_profile() const override;
  std::string end_profile() const override;

 private:
  void switch_profile(bool on) const;

  const driver::Board board_;
};

}  // namespace tpu::pjrt
