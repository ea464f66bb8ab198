// Where `--json` goes: a file, or standard output for "-". In the second case nothing else reaches
// standard output: all text of the process goes to standard error while the object lives.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "file/files.hpp"

namespace tpu::driver {

class JsonOutput {
 public:
  /// `path`: empty: none.
  explicit JsonOutput(std::string path);
  ~JsonOutput();
  JsonOutput(const JsonOutput&) = delete;
  JsonOutput& operator=(const JsonOutput&) = delete;

  bool wanted() const { return !path_.empty(); }
  /// Throws as write_file() when it cannot be written.
  void write(const nlohmann::ordered_json& json) const;

 private:
  std::string path_;
  int standard_output_ = -1;  // the real one, when text goes elsewhere
};

void write_json_file(const std::string& path, const nlohmann::ordered_json& json,
                     Durability durability = Durability::kCached);

}  // namespace tpu::driver
