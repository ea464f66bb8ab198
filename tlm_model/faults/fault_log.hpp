// The log of faults on purpose: a line for each event, in an order that does not depend on how many
// processes have the boards of a pod. Lines of a cycle come by board, then by word and place: the
// kernel's order within a cycle depends on the other boards of a process. So the logs of processes,
// each of boards in a row, are merged by cycle. A board alone keeps the kernel's order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "probe/text_file.hpp"

namespace tpu::model {

class FaultLog {
 public:
  // `path`: "-" is standard error. `boards`: of the pod; lines of a board alone are written at
  // once. Throws std::runtime_error when the file cannot be written.
  FaultLog(const std::string& path, size_t boards);

  // Where a line comes in its cycle. By alphabet what faults before have left comes first: "back",
  // "damage", then "fault", "nothing".
  struct Place {
    uint32_t board = 0;
    std::string_view word{};  // of a string that stays
    std::string_view kind{};  // the same
    uint32_t unit = 0;
    auto operator<=>(const Place&) const = default;
  };
  // Cycles never fall. True: the line is kept until write_before() of the next cycle.
  bool write(uint64_t cycle, const Place& place, const std::string& line);
  void write_before(uint64_t cycle);
  // Empty, or what went wrong.
  std::string finish(const std::string& last_lines = {});

 private:
  struct Line {
    Place place;
    std::string text;
    auto operator<=>(const Line&) const = default;
  };

  TextFile file_;
  const bool ordered_;
  uint64_t cycle_ = 0;  // of what is kept
  std::vector<Line> kept_;
};

}  // namespace tpu::model
