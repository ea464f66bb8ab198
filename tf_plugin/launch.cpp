#include "launch.hpp"

#include <algorithm>

#include "errors.hpp"

namespace tpu::tensorflow {
namespace {

pjrt::DeviceShare share_of(const exe::ExecutableT& program, int device,
                           const std::vector<uint64_t>& arguments) {
  if (arguments.size() != program.args.size()) {
    pjrt::throw_invalid(program.name + ": " + std::to_string(arguments.size()) +
                        " arguments, the program takes " + std::to_string(program.args.size()));
  }
  pjrt::DeviceShare share{device, {}};
  for (size_t i = 0; i < arguments.size(); ++i) {
    const exe::TensorT& wanted = *program.args[i];
    share.arguments.push_back(System::get().memory().array(
        arguments[i], static_cast<driver::DType>(wanted.elem), wanted.local_dims));
  }
  return share;
}

// Donated arguments that the caller keeps.
std::vector<size_t> kept(const exe::ExecutableT& program, const Program::Launch& launch) {
  std::vector<size_t> keep;
  for (size_t i = 0; i < launch.arguments.size(); ++i) {
    const int result = program.args[i]->donated_to;
    const bool given = i < launch.given_away.size() && launch.given_away[i];
    if (result >= 0 && !given &&
        launch.results.at(static_cast<size_t>(result)) != launch.arguments[i]) {
      keep.push_back(i);
    }
  }
  return keep;
}

}  // namespace

std::shared_ptr<const pjrt::DeviceProgram> Program::loaded_on(
    const std::vector<int>& devices) const {
  const base::MutexLock lock(mutex_);
  auto& loaded = loaded_[devices];
  if (!loaded) {
    loaded = System::get().runtime().load(compiled_, devices);
  }
  return loaded;
}

void Program::launch(Stream& stream, const Launch& launch) const {
  const exe::ExecutableT& program = executable();
  const std::shared_ptr<const pjrt::DeviceProgram> loaded = loaded_on(launch.devices);
  pjrt::LaunchRequest request;
  try {
    if (launch.results.size() != program.results.size()) {
      pjrt::throw_invalid(program.name + ": memory for " + std::to_string(launch.results.size()) +
                          " results, the program has " + std::to_string(program.results.size()));
    }
    request.shares.push_back(share_of(program, stream.device(), launch.arguments));
    request.keep = kept(program, launch);
  } catch (const driver::Error& error) {
    if (launch.devices.size() > 1) {  // the other cores wait for this one
      loaded->refuse({stream.device()}, error);
    }
    throw;
  }
  const pjrt::LaunchResult result = loaded->launch(request);
  for (size_t i = 0; i < launch.results.size(); ++i) {
    System::get().memory().set(launch.results[i], result.outputs.at(0)[i]);
  }
  stream.follow(result.done.at(0));
}

void Program::unload() const {
  const base::MutexLock lock(mutex_);
  for (const auto& [devices, program] : loaded_) {
    program->unload();
  }
  loaded_.clear();
}

}  // namespace tpu::tensorflow
