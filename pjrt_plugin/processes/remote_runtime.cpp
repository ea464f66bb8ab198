#include "processes/remote_runtime.hpp"

#include <utility>

#include "processes/remote_array.hpp"
#include "processes/wire/failure.hpp"
#include "runtime/dense_view.hpp"

namespace tpu::pjrt {
namespace {

const RemoteArray& remote(const DeviceArray& array) {
  return static_cast<const RemoteArray&>(array);
}

// Makes an array with `call`, which has its number.
template <class CallT>
DeviceArrayPtr made_by(RemoteLink& link, CallT call, int device, driver::DType dtype,
                       const driver::Shape& shape) {
  const auto array = std::make_shared<const RemoteArray>(link, call.array, device, dtype, shape);
  try {
    link.call(std::move(call));
  } catch (...) {
    array->forget();
    throw;
  }
  return array;
}

template <class CallT>
CallT new_array(RemoteLink& link, int device, driver::DType dtype, const driver::Shape& shape) {
  CallT call;
  call.array = link.new_number();
  call.device = device;
  call.dtype = static_cast<uint8_t>(dtype);
  call.dims = shape;
  return call;
}

// The contents of an array that was promised, or why there are none.
void fill(RemoteLink& link, uint64_t number, std::span<const std::byte> bytes,
          const std::shared_ptr<const driver::Error>& error) {
  wire::FillT call;
  call.array = number;
  call.failure = failure_of(error);
  std::shared_ptr<SegmentPool::Segment> segment;
  if (error == nullptr) {
    call.bytes = link.segments().bytes_of(bytes, segment);
  }
  link.call(std::move(call));
}

class RemoteProgram final : public DeviceProgram {
 public:
  RemoteProgram(RemoteLink& link, uint64_t number,
                std::shared_ptr<const client::CompiledProgram> program)
      : link_(link), number_(number), program_(std::move(program)) {}
  ~RemoteProgram() override {
    wire::DropProgramT drop;
    drop.program = number_;
    link_.tell(std::move(drop));
  }

  LaunchResult launch(const LaunchRequest& request) const override;
  void unload() const override {
    wire::UnloadT unload;
    unload.program = number_;
    link_.tell(std::move(unload));
  }

 private:
  std::vector<DeviceArrayPtr> results_on(int device) const;

  RemoteLink& link_;
  const uint64_t number_;
  const std::shared_ptr<const client::CompiledProgram> program_;
};

std::vector<DeviceArrayPtr> RemoteProgram::results_on(int device) const {
  std::vector<DeviceArrayPtr> results;
  for (const auto& result : program_->executable->results) {
    results.push_back(std::make_shared<const RemoteArray>(link_, link_.new_number(), device,
                                                          static_cast<driver::DType>(result->elem),
                                                          result->local_dims));
  }
  return results;
}

LaunchResult RemoteProgram::launch(const LaunchRequest& request) const {
  wire::LaunchT call;
  call.program = number_;
  call.keep.assign(request.keep.begin(), request.keep.end());
  call.meets = request.meets;
  call.trace_context = request.trace_context;
  call.host_calls = request.on_host_call != nullptr;
  call.event = link_.new_number();
  LaunchResult result;
  for (const DeviceShare& share : request.shares) {
    auto part = std::make_unique<wire::ShareT>();
    part->device = share.device;
    for (const DeviceArrayPtr& argument : share.arguments) {
      part->arguments.push_back(remote(*argument).number());
    }
    result.outputs.push_back(results_on(share.device));
    for (const DeviceArrayPtr& output : result.outputs.back()) {
      part->outputs.push_back(remote(*output).number());
    }
    call.shares.push_back(std::move(part));
  }
  const uint64_t number = call.event;
  result.done.assign(request.shares.size(), link_.expect(number));
  if (request.on_host_call) {
    link_.host_calls().begin(number, request.on_host_call);
  }
  try {
    link_.call(std::move(call));
  } catch (...) {
    link_.forget(number);
    link_.host_calls().end(number);
    for (const auto& outputs : result.outputs) {
      for (const DeviceArrayPtr& output : outputs) {
        remote(*output).forget();
      }
    }
    throw;
  }
  return result;
}

}  // namespace

driver::DeviceInfo RemoteRuntime::device_info(int device) const {
  wire::DeviceUseT call;
  call.device = device;
  const wire::AnswerT answer = link_.call(std::move(call));
  driver::DeviceInfo info;
  info.id = device;
  const auto number = [&answer](size_t i) {
    return i < answer.numbers.size() ? answer.numbers[i] : 0;
  };
  info.hbm_bytes = number(0);
  info.hbm_used = number(1);
  info.hbm_peak = number(2);
  info.hbm_largest_free = number(3);
  info.hbm_limit = number(4);
  return info;
}

DeviceArrayPtr RemoteRuntime::put(int device, const driver::HostView& host) const {
  auto call = new_array<wire::PutT>(link_, device, host.dtype, host.shape);
  std::vector<std::byte> own;
  std::shared_ptr<SegmentPool::Segment> segment;
  call.bytes = link_.segments().bytes_of(dense(host, own), segment);
  return made_by(link_, std::move(call), device, host.dtype, host.shape);
}

DeviceArrayPtr RemoteRuntime::put(int device, driver::DType dtype, const driver::Shape& shape,
                                  std::shared_ptr<const std::vector<std::byte>> bytes,
                                  const driver::Event& after) const {
  auto call = new_array<wire::PutLaterT>(link_, device, dtype, shape);
  const uint64_t number = call.array;
  DeviceArrayPtr array = made_by(link_, std::move(call), device, dtype, shape);
  after.on_ready([&link = link_, number,
                  bytes = std::move(bytes)](const std::shared_ptr<const driver::Error>& error) {
    try {
      fill(link, number, *bytes, error);
    } catch (...) {
      const std::unique_ptr<wire::FailureT> failure = failure_of_exception();
      try {  // the array fails: launches wait for it
        fill(link, number, {}, std::make_shared<const driver::Error>(error_of(*failure)));
      } catch (...) {
        // Without the other process the array has failed; who dropped it does not miss the bytes.
      }
    }
  });
  return array;
}

DeviceArrayPtr RemoteRuntime::zeros(int device, driver::DType dtype,
                                    const driver::Shape& shape) const {
  return made_by(link_, new_array<wire::ZerosT>(link_, device, dtype, shape), device, dtype, shape);
}

DeviceArrayPtr RemoteRuntime::copy(const DeviceArray& source, int device) const {
  wire::CopyT call;
  call.array = link_.new_number();
  call.source = remote(source).number();
  call.device = device;
  return made_by(link_, std::move(call), device, source.dtype(), source.shape());
}

std::shared_ptr<const DeviceProgram> RemoteRuntime::load(
    std::shared_ptr<const client::CompiledProgram> program, const std::vector<int>& devices) const {
  wire::LoadT call;
  call.program = link_.new_number();
  call.devices = devices;
  call.replicas = program->import.replicas;
  call.partitions = program->import.partitions;
  call.layouts = program->import.layouts;
  std::shared_ptr<SegmentPool::Segment> executable, artifact;
  call.executable =
      link_.segments().bytes_of(exe::write_executable(*program->executable), executable);
  call.artifact = link_.segments().bytes_of(program->artifact, artifact);
  const uint64_t number = call.program;
  link_.call(std::move(call));
  return std::make_shared<const RemoteProgram>(link_, number, std::move(program));
}

void RemoteRuntime::refuse(const std::string& name, const std::vector<int>& members,
                           const std::vector<int>& devices, const std::string& meets,
                           const driver::Error& error) const {
  wire::RefuseT call;
  call.name = name;
  call.meets = meets;
  call.members = members;
  call.devices = devices;
  call.failure = failure_of(error);
  link_.call(std::move(call));
}

void RemoteRuntime::leave(const std::vector<int>& devices, const driver::Error& error) const {
  wire::LeaveT call;
  call.devices = devices;
  call.failure = failure_of(error);
  link_.tell(std::move(call));
}

std::shared_ptr<void> RemoteRuntime::host_work() const {
  const auto tell = [&link = link_](bool begins) {
    wire::HostWorkT work;
    work.begins = begins;
    link.tell(std::move(work));
  };
  tell(true);
  return std::shared_ptr<void>(nullptr, [tell](void*) { tell(false); });
}

std::string RemoteRuntime::take_profile(bool goes_on) const {
  std::string space;
  for (uint64_t size = 1; space.size() < size;) {
    wire::EndProfileT call;
    call.first = space.size();
    call.goes_on = goes_on;
    const wire::AnswerT answer = link_.call(std::move(call));
    size = answer.number;
    if (answer.bytes.empty()) {
      break;
    }
    space.append(answer.bytes.begin(), answer.bytes.end());
  }
  return space;
}

}  // namespace tpu::pjrt
