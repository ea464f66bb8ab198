// What is known of a loaded program from the tables of its executable.
#include "src/residency/program.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "figures/program_cost.hpp"
#include "file/crc32c.hpp"
#include "src/residency/program_ids.hpp"

namespace tpu::driver {
namespace {

ParameterInfo parameter(const exe::TensorT& tensor, uint32_t partitions) {
  ParameterInfo info;
  info.name = tensor.name;
  info.dtype = static_cast<DType>(tensor.elem);
  info.shape = tensor.global_dims;
  info.layout.local = tensor.local_dims;
  info.layout.replicated = tensor.replicated;
  const size_t rank = tensor.local_dims.size();
  for (size_t p = 0; p < partitions; ++p) {
    const auto first = tensor.offsets.begin() + static_cast<ptrdiff_t>(p * rank);
    info.layout.offsets.emplace_back(first, first + static_cast<ptrdiff_t>(rank));
  }
  const std::vector<uint16_t> terms = exe::terms_of(tensor);
  info.layout.terms.assign(terms.begin(), terms.end());
  info.donated_to = tensor.donated_to;
  return info;
}

HostCallInfo host_call(const exe::HostCallT& call, const exe::ExecutableT& exe) {
  const exe::OpInfoT& op = *exe.ops[call.op];
  HostCallInfo info;
  info.channel = call.channel;
  info.to_host = call.to_host;
  info.partition = call.partition;
  info.dtype = static_cast<DType>(call.elem);
  info.shape = call.dims;
  info.memory = call.memory;
  info.index = call.index;
  info.stage = static_cast<HostCallStage>(call.stage);
  info.op = op.name;
  info.source = op.file.empty() ? std::string() : fmt::format("{}:{}", op.file, op.line);
  return info;
}

OwnedRuns owned_runs(const exe::TensorT& tensor) {
  if (tensor.owned_elements.empty()) {
    return nullptr;
  }
  std::vector<OwnedRun> runs;
  const std::vector<uint16_t> owners = exe::owners_of(tensor);
  for (size_t i = 0; i < tensor.owned_elements.size(); ++i) {
    runs.push_back({tensor.owned_elements[i], owners.at(i)});
  }
  return std::make_shared<const std::vector<OwnedRun>>(std::move(runs));
}

std::shared_ptr<const ProgramInfo> program_info(const exe::ExecutableT& exe,
                                                std::vector<int> devices) {
  auto info = std::make_shared<ProgramInfo>();
  info->name = exe.name;
  info->devices = std::move(devices);
  info->cost = program_cost(exe);
  for (const auto& tensor : exe.args) {
    info->arguments.push_back(parameter(*tensor, exe.partitions));
  }
  for (const auto& tensor : exe.results) {
    info->results.push_back(parameter(*tensor, exe.partitions));
  }
  for (const auto& call : exe.host_calls) {
    info->host_calls.push_back(host_call(*call, exe));
  }
  return info;
}

}  // namespace

Residence::~Residence() {
  const auto owner = ids.lock();
  if (!owner) {
    return;
  }
  for (const Part& part : parts) {
    if (part.has_id) {
      owner->retire({part.device, part.id, part.sent});
    }
  }
}

LoadedProgram::LoadedProgram(std::shared_ptr<const exe::ExecutableT> from, std::vector<int> on,
                             std::string of_file)
    : owner(std::move(from)),
      file(std::move(of_file)),
      exe(*owner),
      image_crc(spec::crc32c(std::as_bytes(std::span(exe.image)))),
      info(program_info(exe, std::move(on))) {
  for (const auto& tensor : exe.args) {
    argument_owned.push_back(owned_runs(*tensor));
  }
  for (const auto& tensor : exe.results) {
    result_owned.push_back(owned_runs(*tensor));
  }
}

std::shared_ptr<LoadedProgram> ExecutableState::program() const {
  const base::MutexLock guard(mutex_);
  if (!program_) {
    throw Error(ErrorCode::kFailedPrecondition, fmt::format("{} was unloaded", info->name));
  }
  return program_;
}

void ExecutableState::unload() {
  std::shared_ptr<LoadedProgram> gone;  // its end takes other locks
  const base::MutexLock guard(mutex_);
  gone.swap(program_);
}

}  // namespace tpu::driver
