#include "cli/become_program.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tpu/error.hpp"

namespace tpu::driver {

void become_program(std::vector<std::string> words, const std::string& advice) {
  std::vector<char*> argv;
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  throw Error(ErrorCode::kUnavailable,
              fmt::format("{}: cannot be started: {}; {}", words[0], std::strerror(errno), advice));
}

}  // namespace tpu::driver
