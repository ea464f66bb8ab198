// Operations by source line.
#include "waves/source_line.hpp"

#include <algorithm>

#include "exe/executable.hpp"

namespace tpu::model {

bool SourceLine::is_file(std::string_view name) const {
  return name == file_ || (name.size() > file_.size() && name.ends_with(file_) &&
                           name[name.size() - file_.size() - 1] == '/');
}

void SourceLine::begin(uint32_t core, uint32_t launch) {
  auto program = programs_->of(launch);
  Core& runs = cores_[core];
  if (program == runs.program) {
    return;
  }
  runs.ops.clear();
  for (uint32_t id = 0; program != nullptr && id < program->ops.size(); ++id) {
    const exe::OpInfoT& op = *program->ops[id];
    if (op.file.empty()) {
      continue;
    }
    lines_[op.file].insert(op.line);
    if (op.line == line_ && is_file(op.file)) {
      runs.ops.insert(id);
    }
  }
  runs.program = std::move(program);
}

bool SourceLine::has(uint32_t core, uint32_t op_id) const {
  const auto runs = cores_.find(core);
  return runs != cores_.end() && runs->second.ops.contains(op_id);
}

std::string SourceLine::near() const {
  static constexpr size_t kListed = 4;
  const auto list = [](const auto& values, const auto& text) {
    std::string all;
    for (size_t i = 0; i < std::min(kListed, values.size()); ++i) {
      all += (i == 0 ? "" : ", ") + text(values[i]);
    }
    return all;
  };
  std::vector<uint32_t> lines;
  std::vector<std::string> files;
  for (const auto& [file, of_file] : lines_) {
    files.push_back(file);
    if (is_file(file)) {
      lines.insert(lines.end(), of_file.begin(), of_file.end());
    }
  }
  if (files.empty()) {
    return "no program that ran names source lines";
  }
  if (lines.empty()) {
    return "operations are of the files " + list(files, [](const std::string& f) { return f; });
  }
  const auto distance = [this](uint32_t line) {
    return line < line_ ? line_ - line : line - line_;
  };
  if (std::ranges::find(lines, line_) != lines.end()) {
    return "its operations did not run";
  }
  std::ranges::stable_sort(lines, {}, distance);
  return "of " + file_ + " there are operations of the lines " +
         list(lines, [](uint32_t line) { return std::to_string(line); });
}

}  // namespace tpu::model
