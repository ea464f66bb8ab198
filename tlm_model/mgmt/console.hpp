// Console of a control hart: trace words and text lines go to the board's log, which keeps the last
// ones. Law: spec/regs/console.toml.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "mgmt/reg_block.hpp"

namespace tpu::model {

// Log of the whole board; kernel thread only.
class ConsoleLog {
 public:
  struct Word {
    uint64_t cycle;
    uint32_t core;
    uint32_t word;
  };

  void add_word(const Word& word);
  void add_line(const std::string& line);
  const std::deque<Word>& words() const { return words_; }
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  static constexpr size_t kKept = 4096;
  std::deque<Word> words_;
  std::deque<std::string> lines_;
};

class Console : public RegBlock {
 public:
  Console(uint32_t core, ConsoleLog& log) : core_(core), log_(log) {}

  bool read(uint32_t offset, uint32_t& value) override;
  bool write(uint32_t offset, uint32_t value) override;

 private:
  static constexpr size_t kLineBytes = 256;
  const uint32_t core_;
  ConsoleLog& log_;
  std::string line_;
};

}  // namespace tpu::model
