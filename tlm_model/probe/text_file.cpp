// Opening, writing and closing.
#include "probe/text_file.hpp"

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "file/write_failure.hpp"

namespace tpu::model {

TextFile::TextFile(const std::string& path, const std::string& what) : path_(path), what_(what) {
  if (path == "-") {
    file_ = stderr;
    return;
  }
  lock_.emplace(path);
  file_ = lock_->open_stream();
  if (file_ == nullptr) {
    throw std::runtime_error("cannot write " + what + " file " + path + ": " +
                             std::strerror(errno));
  }
}

void TextFile::write(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() && write_error_ == 0) {
    write_error_ = errno;
  }
}

std::string TextFile::finish() {
  if (file_ != nullptr && file_ != stderr) {
    const bool failed = std::ferror(file_) != 0;
    if (std::fclose(file_) != 0 || failed) {
      error_ = write_failure(what_.c_str(), path_, failed ? write_error_ : errno);
    }
  }
  file_ = nullptr;
  return error_;
}

}  // namespace tpu::model
