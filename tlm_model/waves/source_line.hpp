// A line of a program's source as a trigger: which operations of the programs that run are of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "probe/launch_programs.hpp"

namespace tpu::model {

class SourceLine {
 public:
  // `file`: as programs name it, or the end of that from a slash on. `programs` outlives this.
  SourceLine(std::string file, uint32_t line, const LaunchPrograms& programs)
      : file_(std::move(file)), line_(line), programs_(&programs) {}

  // The core begins a step of the launch.
  void begin(uint32_t core, uint32_t launch);
  // Operation of the program that the core runs.
  bool has(uint32_t core, uint32_t op_id) const;
  // Where operations of the programs so far are, near the line.
  std::string near() const;

 private:
  bool is_file(std::string_view name) const;

  std::string file_;
  uint32_t line_;
  const LaunchPrograms* programs_;
  struct Core {
    std::shared_ptr<const exe::ExecutableT> program{};
    std::set<uint32_t> ops{};
  };
  std::map<uint32_t, Core> cores_;
  std::map<std::string, std::set<uint32_t>> lines_;  // of all operations, by file
};

}  // namespace tpu::model
