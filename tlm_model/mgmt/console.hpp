// Console of a control hart: text lines go to the board's log, where they stay until the host takes
// them. Log lines (LOG) go to those who listen to the probe and nowhere else; their text is read
// from the hart's memory by the debug port. Trace words are seen as what they are, device accesses
// of the hart (HartEvent). Specification: spec/regs/console.toml.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "kernel/register_block.hpp"
#include "probe/probe_set.hpp"
#include "tpu/spec/console_regs.hpp"

namespace tpu::model {

// Log of the whole board; kernel thread only.
class ConsoleLog {
 public:
  struct Line {
    uint32_t core;
    std::string text;
  };

  void add_line(uint32_t core, const std::string& text);
  // Lines since the last call, in the order in which they ended.
  std::vector<Line> take_lines();
  bool has_lines() const { return !lines_.empty(); }

 private:
  static constexpr size_t kKept = 4096;  // of a board that prints without end and is not asked
  std::deque<Line> lines_;
  uint64_t lost_ = 0;
};

class Console : public RegisterBlock {
 public:
  // A text of the hart's memory up to its end, at most so many bytes.
  using TextAt = std::function<std::string(uint32_t address, size_t most)>;

  // `probes` may be null.
  Console(uint32_t core, ConsoleLog& log, const ProbeSet* probes, TextAt text_at)
      : RegisterBlock(registers()),
        core_(core),
        log_(log),
        probes_(probes),
        text_at_(std::move(text_at)) {}

  // Ends a line that has begun: nobody goes on writing it.
  void flush();
  void visit_state(spec::Archive& archive) {
    archive(line_, args_);
    archive.need(line_.size() < kLineBytes && args_.size() <= spec::console::kLogArgs,
                 "a line of the console is too long");
  }

 private:
  static constexpr size_t kLineBytes = 256;
  static RegisterMap registers();
  void trace() {}  // probes see the hart's access
  void put(uint32_t character);
  void end_line();
  void add_log_argument(uint32_t value);
  void end_log(uint32_t format);
  template <class Text>
  void tell(const Text& text) const;

  const uint32_t core_;
  ConsoleLog& log_;
  const ProbeSet* const probes_;
  const TextAt text_at_;
  std::string line_;
  std::vector<uint32_t> args_;  // of the next log line
};

}  // namespace tpu::model
