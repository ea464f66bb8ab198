// libedit's interface is that of readline: global hooks of plain C.
#include "cli/debug/line_reader.hpp"

#include <editline/readline.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace tpu::driver {
namespace {

LineReader::Complete complete_typed;
std::vector<std::string> line_completions;

// Called with 0, 1, ..; libedit frees what it gets.
char* next_completion(const char* /*word*/, int state) {
  const auto index = static_cast<size_t>(state);
  return index < line_completions.size() ? strdup(line_completions[index].c_str()) : nullptr;
}

char** complete_word(const char* word, int /*start*/, int end) {
  line_completions = complete_typed(std::string(rl_line_buffer, static_cast<size_t>(end)));
  rl_attempted_completion_over = 1;  // never names of files
  return rl_completion_matches(word, next_completion);
}

}  // namespace

LineReader::LineReader(Complete complete) {
  complete_typed = std::move(complete);
  rl_readline_name = "tpuboard";
  rl_attempted_completion_function = complete_word;
  // Source lines have colons.
  rl_basic_word_break_characters = " \t";
  using_history();
}

LineReader::~LineReader() {
  rl_attempted_completion_function = nullptr;
  complete_typed = nullptr;
}

std::optional<std::string> LineReader::read(const char* prompt) {
  const std::unique_ptr<char, decltype(&std::free)> line(readline(prompt), &std::free);
  if (line == nullptr) {
    return std::nullopt;
  }
  if (*line != '\0') {
    add_history(line.get());
  }
  return std::string(line.get());
}

}  // namespace tpu::driver
