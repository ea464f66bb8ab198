// What units with Verilog report: a line each, under the unit's path. A unit that is wrong once
// may be wrong a million times: its first reports are kept, the others are counted by whoever
// reports.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tpu::model {

class UnitReports {
 public:
  void add(const std::string& path, const std::string& text) {
    const uint64_t number = ++reports_[path];
    if (number <= kKept) {
      text_ += path + ": " + text + "\n";
    } else if (number == kKept + 1) {
      text_ += path + ": more are only counted\n";
    }
  }
  const std::string& text() const { return text_; }

 private:
  static constexpr uint64_t kKept = 10;

  std::map<std::string, uint64_t> reports_;
  std::string text_;
};

}  // namespace tpu::model
