// Console: registers and log.
#include "mgmt/console.hpp"

#include "tpu/spec/console_regs.hpp"

namespace tpu::model {

void ConsoleLog::add_line(uint32_t core, const std::string& text) {
  if (lines_.size() == kKept) {
    lines_.pop_front();
    ++lost_;
  }
  lines_.push_back({core, text});
}

std::vector<ConsoleLog::Line> ConsoleLog::take_lines() {
  std::vector<Line> taken;
  if (lost_ != 0) {
    taken.push_back({lines_.front().core, "(" + std::to_string(lost_) + " earlier lines lost)"});
  }
  taken.insert(taken.end(), lines_.begin(), lines_.end());
  lines_.clear();
  lost_ = 0;
  return taken;
}

bool Console::read(uint32_t /*offset*/, uint32_t& /*value*/) { return false; }

bool Console::write(uint32_t offset, uint32_t value) {
  if (offset == spec::console::kTrace) {
    return true;  // heard as the hart's access
  }
  if (offset != spec::console::kChar) {
    return false;
  }
  const char c = static_cast<char>(value);
  if (c != '\n') {
    line_.push_back(c);
  }
  if (c == '\n' || line_.size() == kLineBytes) {
    log_.add_line(core_, line_);
    line_.clear();
  }
  return true;
}

void Console::flush() {
  if (!line_.empty()) {
    log_.add_line(core_, line_);
    line_.clear();
  }
}

}  // namespace tpu::model
