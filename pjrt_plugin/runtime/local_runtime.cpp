#include "runtime/local_runtime.hpp"

#include <chrono>

namespace tpu::pjrt {
namespace {

// A program in flight may wait for a call of the host that waits for us: not for ever.
constexpr std::chrono::seconds kIdleLimit{60};

class LocalArray final : public DeviceArray {
 public:
  explicit LocalArray(driver::Buffer buffer)
      : DeviceArray(buffer.device(), buffer.dtype(), buffer.shape()), buffer_(std::move(buffer)) {}

  const driver::Buffer& buffer() const { return buffer_; }

  driver::Event ready() const override { return buffer_.ready(); }
  driver::Event read(uint64_t first, std::span<std::byte> out) const override {
    return buffer_.read_part(first, out);
  }
  uint64_t address() const override { return buffer_.address(); }
  void discard() const override { buffer_.discard(); }

 private:
  const driver::Buffer buffer_;
};

DeviceArrayPtr array_of(driver::Buffer buffer) {
  return std::make_shared<const LocalArray>(std::move(buffer));
}

const driver::Buffer& buffer_of(const DeviceArray& array) {
  return static_cast<const LocalArray&>(array).buffer();
}

class LocalProgram final : public DeviceProgram {
 public:
  explicit LocalProgram(driver::Executable executable) : executable_(std::move(executable)) {}

  LaunchResult launch(const LaunchRequest& request) const override;
  void unload() const override { executable_.unload(); }

 private:
  const driver::Executable executable_;
};

LaunchResult LocalProgram::launch(const LaunchRequest& request) const {
  std::vector<driver::Array> arguments;
  for (size_t i = 0; i < executable_.arguments().size(); ++i) {
    const driver::ParameterInfo& info = executable_.arguments()[i];
    std::vector<driver::Buffer> parts;
    for (const DeviceShare& share : request.shares) {
      parts.push_back(buffer_of(*share.arguments.at(i)));
    }
    arguments.emplace_back(info.dtype, info.shape, info.layout, std::move(parts));
  }
  driver::RunOptions run;
  run.keep = request.keep;
  run.on_host_call = request.on_host_call;
  run.trace_context = request.trace_context;
  const driver::RunResult result = executable_.run(arguments, run);
  LaunchResult launched;
  for (size_t d = 0; d < request.shares.size(); ++d) {
    std::vector<DeviceArrayPtr> outputs;
    for (const driver::Array& output : result.outputs) {
      outputs.push_back(array_of(output.parts()[d]));
    }
    launched.outputs.push_back(std::move(outputs));
    launched.done.push_back(result.done);
  }
  return launched;
}

}  // namespace

driver::DeviceInfo LocalRuntime::device_info(int device) const {
  return board_.devices().at(static_cast<size_t>(device));
}

DeviceArrayPtr LocalRuntime::put(int device, const driver::HostView& host) const {
  return array_of(board_.put(device, host));
}

DeviceArrayPtr LocalRuntime::put(int device, driver::DType dtype, const driver::Shape& shape,
                                 std::shared_ptr<const std::vector<std::byte>> bytes,
                                 const driver::Event& after) const {
  return array_of(board_.put(device, dtype, shape, std::move(bytes), {after}));
}

DeviceArrayPtr LocalRuntime::zeros(int device, driver::DType dtype,
                                   const driver::Shape& shape) const {
  return array_of(board_.zeros(device, dtype, shape));
}

DeviceArrayPtr LocalRuntime::copy(const DeviceArray& source, int device) const {
  return array_of(board_.copy(buffer_of(source), device));
}

std::shared_ptr<const DeviceProgram> LocalRuntime::load(
    std::shared_ptr<const client::CompiledProgram> program, const std::vector<int>& devices) const {
  return std::make_shared<const LocalProgram>(board_.load(program->executable, devices));
}

void LocalRuntime::switch_profile(bool on) const {
  driver::SimOptions sim = board_.sim();
  sim.xprof = on;
  board_.change_sim(sim);
}

void LocalRuntime::begin_profile() const {
  board_.synchronize_for(kIdleLimit);
  switch_profile(true);
}

std::string LocalRuntime::end_profile() const {
  board_.synchronize_for(kIdleLimit);
  std::string space = board_.take_xspace();
  board_.synchronize_for(kIdleLimit);
  switch_profile(false);
  return space;
}

}  // namespace tpu::pjrt
