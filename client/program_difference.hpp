// Whether two executables run the same. Those of one program may differ in what is said of them:
// names and lines of the source that it was traced from.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exe/executable.hpp"

namespace tpu::client {

/// What an executable has, to compare it with others.
class ProgramParts {
 public:
  using Digest = std::array<unsigned char, 32>;

  explicit ProgramParts(const exe::ExecutableT& executable);

  /// What one has otherwise than the other ("arguments", "results", "constants", "code", ...), the
  /// first of what a reader would look for; nothing: they run the same.
  std::optional<std::string> difference(const ProgramParts& other) const;

 private:
  std::vector<std::pair<std::string, Digest>> digests_;  // by part
};

/// The first lines of two texts of programs in StableHLO that say different things, each with the
/// line of the source that it comes from: what is only said of a program is no difference. Nothing:
/// there are no such lines.
std::optional<std::pair<std::string, std::string>> first_difference(const std::string& one,
                                                                    const std::string& other);

}  // namespace tpu::client
