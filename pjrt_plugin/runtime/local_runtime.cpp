// Programs and arrays of the driver as those of the interface.
#include "runtime/local_runtime.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

namespace tpu::pjrt {
namespace {

// A program in flight may wait for a call of the host that waits for us: not for ever.
constexpr std::chrono::seconds kIdleLimit{60};

DeviceArrayPtr array_of(driver::Buffer buffer) {
  return std::make_shared<const LocalArray>(std::move(buffer));
}

const LocalArray& local(const DeviceArray& array) { return static_cast<const LocalArray&>(array); }

}  // namespace

// A program that several handles launch device by device is on the board once.
struct LocalRuntime::SharedLoad {
  base::Mutex mutex;
  driver::Executable loaded TPU_GUARDED_BY(mutex);
};

class LocalProgram final : public DeviceProgram {
 public:
  LocalProgram(const LocalRuntime& runtime, std::shared_ptr<const client::CompiledProgram> program,
               std::vector<int> devices)
      : runtime_(runtime), program_(std::move(program)), devices_(std::move(devices)) {}

  LaunchResult launch(const LaunchRequest& request) const override;
  // Launches that wait keep it.
  void unload() const override {
    const base::MutexLock lock(mutex_);
    unloaded_ = true;
    own_ = {};
    shared_.reset();
  }

 private:
  driver::Executable own() const;
  Gangs::Program for_gang() const;
  LaunchResult launch_later(const LaunchRequest& request, const driver::Executable& loaded) const;
  void check_loaded() const TPU_REQUIRES(mutex_) {
    if (unloaded_) {
      throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                          program_->executable->name + " was unloaded");
    }
  }

  const LocalRuntime& runtime_;
  const std::shared_ptr<const client::CompiledProgram> program_;
  const std::vector<int> devices_;  // by partition
  mutable base::Mutex mutex_;
  mutable bool unloaded_ TPU_GUARDED_BY(mutex_) = false;
  mutable driver::Executable own_ TPU_GUARDED_BY(mutex_);
  mutable std::shared_ptr<LocalRuntime::SharedLoad> shared_ TPU_GUARDED_BY(mutex_);
};

driver::Executable LocalProgram::own() const {
  {
    const base::MutexLock lock(mutex_);
    check_loaded();
    if (own_.valid()) {
      return own_;
    }
  }
  // Without the lock: the call runs callbacks, which may launch the same program.
  driver::Executable made = runtime_.board_.load(program_->executable, devices_);
  const base::MutexLock lock(mutex_);
  check_loaded();
  if (!own_.valid()) {
    own_ = std::move(made);
  }
  return own_;
}

Gangs::Program LocalProgram::for_gang() const {
  std::shared_ptr<LocalRuntime::SharedLoad> shared;
  {
    const base::MutexLock lock(mutex_);
    check_loaded();
    if (!shared_) {
      shared_ = runtime_.shared_load(program_, devices_);
    }
    shared = shared_;
  }
  const auto load = [board = runtime_.board_, program = program_, devices = devices_, shared] {
    {
      const base::MutexLock lock(shared->mutex);
      if (shared->loaded.valid()) {
        return BoardProgram{shared->loaded};
      }
    }
    driver::Executable made = board.load(program->executable, devices);
    const base::MutexLock lock(shared->mutex);
    shared->loaded = std::move(made);
    return BoardProgram{shared->loaded};
  };
  return {program_, devices_, load};
}

LaunchResult LocalProgram::launch(const LaunchRequest& request) const {
  if (request.shares.size() < devices_.size()) {
    return runtime_.gangs_.join(for_gang(), request);
  }
  const driver::Executable loaded = own();
  const auto there = [](const DeviceArrayPtr& array) { return local(*array).settled(); };
  if (runtime_.queue_.busy(request.shares) ||
      !std::ranges::all_of(request.shares, [&](const DeviceShare& share) {
        return std::ranges::all_of(share.arguments, there);
      })) {
    return launch_later(request, loaded);
  }
  const driver::RunResult result = run_on_board(loaded, request);
  LaunchResult launched;
  for (size_t d = 0; d < request.shares.size(); ++d) {
    runtime_.gangs_.note(request.shares[d].device);
    std::vector<DeviceArrayPtr> outputs;
    for (const driver::Array& output : result.outputs) {
      outputs.push_back(array_of(output.parts()[d]));
    }
    launched.outputs.push_back(std::move(outputs));
    launched.done.push_back(result.done);
  }
  return launched;
}

LaunchResult LocalProgram::launch_later(const LaunchRequest& request,
                                        const driver::Executable& loaded) const {
  const exe::ExecutableT& exe = *program_->executable;
  const auto launch = std::make_shared<WaitingLaunch>(
      runtime_.board_, exe.name, request.shares.size(), [loaded] { return BoardProgram{loaded}; });
  LaunchResult result;
  std::vector<int> devices;
  for (size_t p = 0; p < request.shares.size(); ++p) {
    runtime_.gangs_.note(request.shares[p].device);
    result.outputs.push_back(launch->add(p, exe, request, p));
    result.done.push_back(launch->made());
    devices.push_back(request.shares[p].device);
  }
  runtime_.queue_.add(launch, devices, 0);
  runtime_.queue_.run();
  return result;
}

driver::DeviceInfo LocalRuntime::device_info(int device) const {
  return board_.devices().at(static_cast<size_t>(device));
}

DeviceArrayPtr LocalRuntime::put(int device, const driver::HostView& host) const {
  DeviceArrayPtr array = array_of(board_.put(device, host));
  gangs_.note(device);
  return array;
}

DeviceArrayPtr LocalRuntime::put(int device, driver::DType dtype, const driver::Shape& shape,
                                 std::shared_ptr<const std::vector<std::byte>> bytes,
                                 const driver::Event& after) const {
  DeviceArrayPtr array = array_of(board_.put(device, dtype, shape, std::move(bytes), {after}));
  gangs_.note(device);
  return array;
}

DeviceArrayPtr LocalRuntime::zeros(int device, driver::DType dtype,
                                   const driver::Shape& shape) const {
  return array_of(board_.zeros(device, dtype, shape));
}

DeviceArrayPtr LocalRuntime::copy(const DeviceArray& source, int device) const {
  const LocalArray& from = local(source);
  if (const auto there = from.buffer()) {
    return array_of(board_.copy(*there, device));
  }
  const driver::HostEvent made = board_.make_event();
  auto copied =
      std::make_shared<const LocalArray>(device, from.dtype(), from.shape(), board_, made.event());
  from.then([board = board_, device, copied, made](const driver::Buffer* buffer,
                                                   const driver::Error* error) {
    const auto give_up = [&](const driver::Error& why) {
      copied->fail(why);
      fail_event(made, why);
    };
    if (error != nullptr) {
      return give_up(*error);
    }
    try {
      const driver::Buffer copy = board.copy(*buffer, device);
      copied->settle(copy);
      pass_on(copy.ready(), made);
    } catch (const driver::Error& refused) {
      give_up(refused);
    }
  });
  return copied;
}

std::shared_ptr<const DeviceProgram> LocalRuntime::load(
    std::shared_ptr<const client::CompiledProgram> program, const std::vector<int>& devices) const {
  check_devices(program->executable->name, program->executable->partitions, devices);
  return std::make_shared<const LocalProgram>(*this, std::move(program), devices);
}

// What a launch looks for by these numbers, also on threads that nobody would tell of an error.
void LocalRuntime::check_devices(const std::string& program, size_t count,
                                 const std::vector<int>& devices) const {
  const auto all = static_cast<int>(board_.devices().size());
  std::vector<int> each = devices;
  std::ranges::sort(each);
  if (each.empty() || each.size() != count || each.front() < 0 || each.back() >= all ||
      std::ranges::adjacent_find(each) != each.end()) {
    throw driver::Error(driver::ErrorCode::kInvalidArgument,
                        fmt::format("{} on TPU:{}: expected {} different devices of 0 to {}",
                                    program, fmt::join(devices, ", TPU:"), count, all - 1));
  }
}

void LocalRuntime::refuse(const std::string& name, const std::vector<int>& members,
                          const std::vector<int>& devices, const std::string& meets,
                          const driver::Error& error) const {
  check_devices(name, members.size(), members);
  gangs_.refuse(name, members, devices, meets, error);
}

std::shared_ptr<LocalRuntime::SharedLoad> LocalRuntime::shared_load(
    const std::shared_ptr<const client::CompiledProgram>& program,
    const std::vector<int>& devices) const {
  const base::MutexLock lock(loads_mutex_);
  std::erase_if(loads_, [](const auto& load) { return load.second.expired(); });
  std::weak_ptr<SharedLoad>& known = loads_[{program.get(), devices}];
  auto load = known.lock();
  if (!load) {
    known = load = std::make_shared<SharedLoad>();
  }
  return load;
}

void LocalRuntime::leave(const std::vector<int>& devices, const driver::Error& error) const {
  gangs_.leave(devices, error);
}

std::shared_ptr<void> LocalRuntime::host_work() const {
  return std::make_shared<Gangs::HostWork>(gangs_);
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

std::string LocalRuntime::take_profile(bool goes_on) const {
  board_.synchronize_for(kIdleLimit);
  std::string space = board_.take_xspace();
  if (!goes_on) {
    board_.synchronize_for(kIdleLimit);
    switch_profile(false);
  }
  return space;
}

}  // namespace tpu::pjrt
