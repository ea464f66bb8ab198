// Executables are compared by the digests of their parts: constants may be gigabytes, and of each
// executable there is one copy and one serialized part at a time.
#include "program_difference.hpp"

#include <openssl/sha.h>

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

ProgramParts::Digest digest_of(const ExecutableT& executable) {
  const std::vector<std::byte> bytes = exe::write_executable(executable);
  ProgramParts::Digest digest;
  ::SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return digest;
}

// Of one part, which is taken from the executable.
template <class Part>
ProgramParts::Digest taken(ExecutableT& from, Part ExecutableT::*part) {
  ExecutableT alone;
  alone.*part = std::exchange(from.*part, {});
  return digest_of(alone);
}

}  // namespace

ProgramParts::ProgramParts(const ExecutableT& executable) {
  ExecutableT rest = bare(executable);
  digests_.emplace_back("number of partitions", taken(rest, &ExecutableT::partitions));
  digests_.emplace_back("arguments", taken(rest, &ExecutableT::args));
  digests_.emplace_back("results", taken(rest, &ExecutableT::results));
  digests_.emplace_back("calls of the host", taken(rest, &ExecutableT::host_calls));
  digests_.emplace_back("constants", taken(rest, &ExecutableT::constants));
  digests_.emplace_back("code", digest_of(rest));
}

std::optional<std::string> ProgramParts::difference(const ProgramParts& other) const {
  for (size_t i = 0; i < digests_.size(); ++i) {
    if (digests_[i].second != other.digests_[i].second) {
      return digests_[i].first;
    }
  }
  return std::nullopt;
}

}  // namespace tpu::client
