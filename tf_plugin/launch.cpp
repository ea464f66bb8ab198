#include "launch.hpp"

#include <algorithm>

#include "errors.hpp"
#include "steps.hpp"

namespace tpu::tensorflow {
namespace {

pjrt::DeviceShare share_of(const exe::ExecutableT& program, int device,
                           const Program::Launch& launch) {
  const std::vector<uint64_t>& arguments = launch.arguments;
  if (arguments.size() + (launch.seed ? 1 : 0) != program.args.size()) {
    pjrt::throw_invalid(program.name + ": found " + std::to_string(arguments.size()) +
                        " arguments, expected " +
                        std::to_string(program.args.size() - (launch.seed ? 1 : 0)));
  }
  pjrt::DeviceShare share{device, {}};
  for (size_t i = 0; i < arguments.size(); ++i) {
    const exe::TensorT& wanted = *program.args[i];
    if (arguments[i] == Program::Launch::kElsewhere) {
      share.arguments.push_back(System::get().runtime().zeros(
          device, static_cast<driver::DType>(wanted.elem), wanted.local_dims));
      continue;
    }
    share.arguments.push_back(System::get().memory().array(
        arguments[i], static_cast<driver::DType>(wanted.elem), wanted.local_dims));
  }
  if (launch.seed) {
    share.arguments.push_back(System::get().runtime().put(
        device, driver::HostView(driver::DType::kU32, program.args.back()->local_dims,
                                 std::as_bytes(std::span(&*launch.seed, 1)))));
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

// `done`: the end of the launch.
void follow(Stream& stream, const Program::Launch& launch, const driver::Event& done) {
  if (launch.on_failure) {
    done.on_ready([told = launch.on_failure](const std::shared_ptr<const driver::Error>& error) {
      if (error) {
        told(*error);
      }
    });
  }
  const auto of = launch.devices.size() > 1 ? Stream::Of::kSeveralCores : Stream::Of::kOneCore;
  if (launch.meets.empty()) {
    stream.follow(done, of);
  } else {
    stream.follow(done, of, [meets = launch.meets] { return Steps::get().was_refused(meets); });
    done.on_ready([meets = launch.meets](const std::shared_ptr<const driver::Error>& error) {
      if (error) {
        Steps::get().failed(meets);
      }
    });
  }
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
  pjrt::LaunchResult result;
  try {
    const std::shared_ptr<const pjrt::DeviceProgram> loaded = loaded_on(launch.devices);
    pjrt::LaunchRequest request;
    const size_t known = launch.dynamic.empty()
                             ? program.results.size() - launch.embedding_results.size()
                             : launch.dynamic[0].first_size;
    if (launch.results.size() != known) {
      pjrt::throw_invalid(program.name + ": memory for " + std::to_string(launch.results.size()) +
                          " results, expected for " + std::to_string(known));
    }
    request.shares.push_back(share_of(program, stream.device(), launch));
    request.keep = kept(program, launch);
    request.on_host_call = launch.on_host_call;
    request.meets = launch.meets;
    result = loaded->launch(request);
  } catch (...) {
    refuse(stream, launch);
    throw;
  }
  const std::vector<pjrt::DeviceArrayPtr>& outputs = result.outputs.at(0);
  for (size_t i = 0; i < launch.results.size(); ++i) {
    if (launch.results[i] != Program::Launch::kElsewhere) {
      System::get().memory().set(launch.results[i], outputs[i]);
    }
  }
  const size_t hidden = launch.embedding_results.size();
  for (size_t i = 0; i < hidden; ++i) {
    System::get().memory().set(launch.embedding_results[i], outputs[outputs.size() - hidden + i]);
  }
  for (const DynamicResult& dynamic : launch.dynamic) {
    if (launch.results[dynamic.result] == Program::Launch::kElsewhere) {
      continue;
    }
    const pjrt::DeviceArrayPtr& array = outputs[dynamic.result];
    const auto sizes = outputs.begin() + static_cast<std::ptrdiff_t>(dynamic.first_size);
    const auto rank = static_cast<std::ptrdiff_t>(dynamic.rank);
    System::get().memory().set(launch.results[dynamic.result], Sized{array, {sizes, sizes + rank}});
  }
  follow(stream, launch, result.done.at(0));
}

void Program::refuse(const Stream& stream, const Launch& launch) const {
  if (launch.devices.size() > 1) {
    Steps::get().refused(launch.meets);
    System::get().runtime().refuse(executable().name, launch.devices, {stream.device()},
                                   launch.meets, pjrt::error_of_exception());
  }
}

void Program::unload() const {
  const base::MutexLock lock(mutex_);
  for (const auto& [devices, program] : loaded_) {
    program->unload();
  }
  loaded_.clear();
}

}  // namespace tpu::tensorflow
