// Console: registers and log.
#include "mgmt/console.hpp"

#include "kernel/cycles.hpp"
#include "tpu/spec/console_regs.hpp"

namespace tpu::model {

void ConsoleLog::add_word(const Word& word) {
  if (words_.size() == kKept) {
    words_.pop_front();
  }
  words_.push_back(word);
}

void ConsoleLog::add_line(const std::string& line) {
  if (lines_.size() == kKept) {
    lines_.pop_front();
  }
  lines_.push_back(line);
}

bool Console::read(uint32_t /*offset*/, uint32_t& /*value*/) { return false; }

bool Console::write(uint32_t offset, uint32_t value) {
  if (offset == spec::console::kTrace) {
    log_.add_word({now_cycles(), core_, value});
    return true;
  }
  if (offset != spec::console::kChar) {
    return false;
  }
  const char c = static_cast<char>(value);
  if (c != '\n') {
    line_.push_back(c);
  }
  if (c == '\n' || line_.size() == kLineBytes) {
    log_.add_line("core" + std::to_string(core_) + ": " + line_);
    line_.clear();
  }
  return true;
}

}  // namespace tpu::model
