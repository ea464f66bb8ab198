// Console: registers and log.
#include "mgmt/console.hpp"

#include "kernel/cycles.hpp"
#include "mgmt/log_format.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/spec/console_regs.hpp"
#include "tpu/spec/console_table.hpp"

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

RegisterMap Console::registers() {
  namespace regs = spec::console;
  static constexpr auto kMap = make_register_map(
      regs::kTable, {on_write<&Console::trace>(regs::kTrace), on_write<&Console::put>(regs::kChar),
                     on_write<&Console::add_log_argument>(regs::kLogArg),
                     on_write<&Console::end_log>(regs::kLog)});
  return kMap.view();
}

void Console::add_log_argument(uint32_t value) {
  if (args_.size() < spec::console::kLogArgs) {
    args_.push_back(value);
  }
}

void Console::put(uint32_t character) {
  const char c = static_cast<char>(character);
  if (c != '\n') {
    line_.push_back(c);
  }
  if (c == '\n' || line_.size() == kLineBytes) {
    end_line();
  }
}

void Console::flush() {
  if (!line_.empty()) {
    end_line();
  }
}

void Console::end_line() {
  log_.add_line(core_, line_);
  tell([&] { return spec::printable_text(line_); });
  line_.clear();
}

void Console::end_log(uint32_t format) {
  tell([&] {
    const auto text_at = [&](uint32_t address) { return text_at_(address, kLineBytes); };
    return spec::printable_text(format_log(text_at(format), args_, text_at));
  });
  args_.clear();
}

template <class Text>
void Console::tell(const Text& text) const {
  if (probes_ != nullptr && probes_->wants(ProbeEvent::kLog, core_bit(core_))) {
    const std::string line = text();
    probes_->tell<LogEvent>(core_bit(core_), ProbeEvent::kLog, &ProbeSink::log, [&] {
      return LogEvent{.cycle = now_cycles(), .core = core_, .text = line};
    });
  }
}

}  // namespace tpu::model
