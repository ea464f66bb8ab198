// ProgramCache: executables in a folder, one file each, named after what they were made from. What
// a file is says its head (magic and key), not its name, and only files of one's own user are
// believed, replaced and removed. A file that is damaged counts as none; a folder that cannot be
// read or written keeps nothing, which is said once. Several processes may use one folder: files
// appear whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exe/executable.hpp"
#include "sync/mutex.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::client {

// SHA-256, in hexadecimal digits, of all that an executable depends on: artifact, numbers of the
// board, cores by partition (none: in order), what else was asked of the compiler, as a text, and
// build of the compiler.
std::string program_key(std::span<const std::byte> artifact, const spec::BoardParams& board,
                        const std::vector<int>& cores, const std::string& form = {});

class ProgramCache {
 public:
  // Empty folder: keeps nothing. What was not used for longest goes when the files have more than
  // `limit_bytes` together; looked at by the first program that is kept, and each time that this
  // object has kept an eighth of the limit since, so that the folder may be so much larger.
  // `say`: is told the first thing that goes wrong.
  ProgramCache(std::string folder, uint64_t limit_bytes,
               std::function<void(const std::string&)> say);

  const std::string& folder() const { return folder_; }

  // Neither throws: a program is compiled whatever the cache does.
  std::optional<exe::ExecutableT> find(const std::string& key) const;
  void keep(const std::string& key, const exe::ExecutableT& executable);

 private:
  std::string path_of(const std::string& key) const;
  void make_room(const std::string& kept_path, uint64_t bytes);
  void complain(const std::string& path, const std::string& why) const;

  const std::string folder_;
  const uint64_t limit_bytes_;
  const std::function<void(const std::string&)> say_;
  mutable base::Mutex said_mutex_;
  mutable bool said_ TPU_GUARDED_BY(said_mutex_) = false;
  base::Mutex mutex_;
  uint64_t unseen_bytes_ TPU_GUARDED_BY(mutex_);  // kept since the folder was looked at
};

}  // namespace tpu::client
