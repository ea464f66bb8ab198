// A file of scalars by step that TensorBoard shows: records as in a TFRecord file, each an Event
// (event.proto).
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace tpu::training {

class EventFile {
 public:
  /// Makes OUT/events.out.tfevents.SECONDS.tpuboard. `step`: of the checkpoint that the run goes on
  /// from; TensorBoard forgets what earlier files of the folder have behind it. Throws Error.
  EventFile(const std::filesystem::path& folder, int64_t step);

  void add(int64_t step, const std::vector<Metric>& values);
  /// To the file system. False when something could not be written.
  bool flush();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void record(const std::string& message);

  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace tpu::training
