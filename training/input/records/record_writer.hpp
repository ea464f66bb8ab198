// Writes TFRecord files.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "file/files.hpp"
#include "input/records/compression.hpp"

namespace tpu::input {

/// The file stands under its name when it is finished, not before. Throws as driver::FileWriter.
class RecordWriter {
 public:
  RecordWriter(const std::string& path, Compression compression);

  void add(std::span<const std::byte> record);
  /// The last call.
  void finish();

 private:
  void flush(bool last);

  driver::FileWriter file_;
  Packer packer_;
  std::vector<std::byte> framed_;
};

}  // namespace tpu::input
