// The log of faults on purpose: a line for each event, in an order that does not depend on how many
// processes have the boards of a pod. Within a cycle the lines of a board keep their order, and
// boards come by number; so the logs of processes, each of boards in a row, are merged by cycle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "probe/text_file.hpp"

namespace tpu::model {

class FaultLog {
 public:
  // `path`: "-" is standard error. `boards`: of the pod; lines of a board alone are written at
  // once. Throws std::runtime_error when the file cannot be written.
  FaultLog(const std::string& path, size_t boards);

  // Cycles never fall. True: the line is kept until write_before() of the next cycle.
  bool write(uint64_t cycle, uint32_t board, const std::string& line);
  void write_before(uint64_t cycle);
  // Empty, or what went wrong.
  std::string finish(const std::string& last_lines = {});

 private:
  struct Line {
    uint32_t board;
    std::string text;
  };

  TextFile file_;
  const bool ordered_;
  uint64_t cycle_ = 0;  // of what is kept
  std::vector<Line> kept_;
};

}  // namespace tpu::model
