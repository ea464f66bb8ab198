// Standard output is moved at the level of file descriptors, so that prints of any library move
// with it.
#include "format/json_output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

// Texts of errors may hold any bytes of a user's file names.
std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

JsonOutput::JsonOutput(std::string path) : path_(std::move(path)) {
  if (path_ != "-") {
    return;
  }
  std::fflush(stdout);
  standard_output_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (standard_output_ < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    throw Error(ErrorCode::kInternal,
                fmt::format("standard output: cannot be duplicated: {}", std::strerror(errno)));
  }
}

JsonOutput::~JsonOutput() {
  if (standard_output_ >= 0) {
    std::fflush(stdout);
    ::dup2(standard_output_, STDOUT_FILENO);
    ::close(standard_output_);
  }
}

void JsonOutput::write(const nlohmann::ordered_json& json) const {
  if (standard_output_ < 0) {
    write_json_file(path_, json);
    return;
  }
  const std::string text = json_text(json);
  if (!write_all(standard_output_, std::as_bytes(std::span(text)))) {
    throw Error(ErrorCode::kInternal,
                fmt::format("standard output: cannot be written: {}", std::strerror(errno)));
  }
}

void write_json_file(const std::string& path, const nlohmann::ordered_json& json,
                     Durability durability) {
  const std::string text = json_text(json);
  write_file(path, std::as_bytes(std::span(text)), durability);
}

}  // namespace tpu::driver
