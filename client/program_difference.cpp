#include "program_difference.hpp"

#include <utility>

namespace tpu::client {
namespace {

using exe::ExecutableT;

// Without what is only said.
ExecutableT bare(const ExecutableT& executable) {
  ExecutableT made(executable);
  made.name.clear();
  made.ops.clear();  // instructions have numbers of ops, which follow from the order of kernels
  made.notes.clear();
  for (auto* tensors : {&made.args, &made.results}) {
    for (const auto& tensor : *tensors) {
      tensor->name.clear();
    }
  }
  return made;
}

// Of one part that executables have.
template <class Part>
bool differs(ExecutableT& one, ExecutableT& other, Part ExecutableT::*part) {
  ExecutableT a;
  ExecutableT b;
  a.*part = std::move(one.*part);
  b.*part = std::move(other.*part);
  return exe::write_executable(a) != exe::write_executable(b);
}

}  // namespace

std::optional<std::string> program_difference(const ExecutableT& one, const ExecutableT& other) {
  ExecutableT a = bare(one);
  ExecutableT b = bare(other);
  if (exe::write_executable(a) == exe::write_executable(b)) {
    return std::nullopt;
  }
  if (a.partitions != b.partitions) {
    return "number of partitions";
  }
  if (differs(a, b, &ExecutableT::args)) {
    return "arguments";
  }
  if (differs(a, b, &ExecutableT::results)) {
    return "results";
  }
  if (differs(a, b, &ExecutableT::host_calls)) {
    return "calls of the host";
  }
  if (differs(a, b, &ExecutableT::constants)) {
    return "constants";
  }
  return "code";
}

}  // namespace tpu::client
