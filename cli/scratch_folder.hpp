// A new folder that is deleted with the object.
#pragma once

#include <stdlib.h>  // mkdtemp

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

namespace tpu::driver {

class ScratchFolder {
 public:
  /// `name` ends with six X, in whose place come other letters. Where no folder can be made,
  /// `refuse` gets the reason, and throws.
  template <class Refuse>
  ScratchFolder(const std::filesystem::path& name, const Refuse& refuse) : path_(name.string()) {
    if (::mkdtemp(path_.data()) == nullptr) {
      refuse(std::strerror(errno));
    }
  }
  ~ScratchFolder() { remove(); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  void remove() const {
    std::error_code none;  // it may be half gone already
    std::filesystem::remove_all(path_, none);
  }

 private:
  std::string path_;
};

}  // namespace tpu::driver
