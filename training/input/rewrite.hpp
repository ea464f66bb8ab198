// Data sets from one form to the other: arrays to TFRecord files, any source to .npy files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "input/array_source.hpp"
#include "input/records/compression.hpp"

namespace tpu::input {

/// Called with the examples that are done, of all; never by two threads at a time.
using RewriteProgress = std::function<void(uint64_t done, uint64_t all)>;

struct RecordFiles {
  std::string prefix;  ///< files PREFIX-00000-of-00008.tfrecord (.gz, .zz)
  unsigned shards = 1;
  Compression compression = Compression::kNone;
  unsigned threads = 2;

  /// One for each shard.
  std::vector<std::string> paths() const;
};

/// Examples in order, the same number in each file but one more in some. `names`: the features, one
/// for each column; `columns` as for array_source(). Throws driver::Error.
void write_records(const std::vector<std::string>& names, const std::vector<Column>& columns,
                   const RecordFiles& files, const RewriteProgress& progress);

/// FOLDER/NAME.npy for each feature, [examples, ...shape]. A name with a '/' is refused.
std::vector<std::string> array_paths(const std::string& folder,
                                     const std::vector<Feature>& features);
void write_arrays(std::shared_ptr<const Source> source, const std::vector<Feature>& features,
                  const std::string& folder, unsigned threads, const RewriteProgress& progress);

}  // namespace tpu::input
