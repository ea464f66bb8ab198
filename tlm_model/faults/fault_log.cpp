// Order of the lines of a cycle.
#include "faults/fault_log.hpp"

#include <algorithm>

namespace tpu::model {

FaultLog::FaultLog(const std::string& path, size_t boards)
    : file_(path, "fault log"), ordered_(boards > 1) {
  file_.flush_lines();
}

bool FaultLog::write(uint64_t cycle, const Place& place, const std::string& line) {
  if (!ordered_) {
    file_.write(line);
    return false;
  }
  write_before(cycle);
  cycle_ = cycle;
  kept_.push_back({place, line});
  return true;
}

void FaultLog::write_before(uint64_t cycle) {
  if (cycle <= cycle_) {
    return;
  }
  std::ranges::sort(kept_);
  for (const Line& line : kept_) {
    file_.write(line.text);
  }
  kept_.clear();
}

std::string FaultLog::finish(const std::string& last_lines) {
  write_before(UINT64_MAX);
  if (!last_lines.empty()) {
    file_.write(last_lines);
  }
  return file_.finish();
}

}  // namespace tpu::model
