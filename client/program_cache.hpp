// ProgramCache: executables in a folder, one file each, named after what they were made from. A
// file that is damaged counts as none; a folder that cannot be written keeps nothing. Several
// processes may use one folder: files appear whole, by rename.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exe/executable.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::client {

// SHA-256, in hexadecimal digits, of all that an executable depends on: artifact, numbers of the
// board, cores by partition (none: in order) and build of the compiler.
std::string program_key(std::span<const std::byte> artifact, const spec::BoardParams& board,
                        const std::vector<int>& cores);

class ProgramCache {
 public:
  // Empty folder: keeps nothing.
  explicit ProgramCache(std::string folder) : folder_(std::move(folder)) {}

  std::optional<exe::ExecutableT> find(const std::string& key) const;
  void keep(const std::string& key, const exe::ExecutableT& executable) const;

 private:
  std::string path_of(const std::string& key) const;
  std::string folder_;
};

}  // namespace tpu::client
