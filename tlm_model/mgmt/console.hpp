// Console of a control hart: text lines go to the board's log, where they stay until the host takes
// them. Trace words are seen as what they are, device accesses of the hart (HartEvent). Law:
// spec/regs/console.toml.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "mgmt/reg_block.hpp"

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

 private:
  static constexpr size_t kKept = 4096;  // of a board that prints without end and is not asked
  std::deque<Line> lines_;
  uint64_t lost_ = 0;
};

class Console : public RegBlock {
 public:
  Console(uint32_t core, ConsoleLog& log) : core_(core), log_(log) {}

  bool read(uint32_t offset, uint32_t& value) override;
  bool write(uint32_t offset, uint32_t value) override;
  // Ends a line that has begun: nobody goes on writing it.
  void flush();
  void visit_state(spec::Archive& archive) { archive(line_); }

 private:
  static constexpr size_t kLineBytes = 256;
  const uint32_t core_;
  ConsoleLog& log_;
  std::string line_;
};

}  // namespace tpu::model
