// Examples from TFRecord files of `tf.train.Example`, one file behind the other or in turn. When it
// is opened each file's record headers are read once (their lengths and the lengths' checksums);
// records are read, and their checksums verified, when they are asked for. Compressed files (gzip,
// zlib) are unpacked into memory when they are opened.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "input/feature.hpp"
#include "input/source.hpp"

namespace tpu::input {

/// The files that the patterns (as of a shell) name, in order of name within each pattern. A file
/// that is there by the very name of a pattern is what it means. One that several patterns name is
/// taken once, where the first does; a link of another name is another file. Throws driver::Error
/// InvalidArgument for a pattern without files.
std::vector<std::string> find_files(const std::vector<std::string>& patterns);

/// `pattern` relative to `folder`, which means itself whatever characters it has.
std::string pattern_in(const std::string& folder, const std::string& pattern);

/// Records of several files in turn: `files` of them are open at a time, and each gives `block`
/// records before the next one does. A file at its end makes room for the next one of the list.
struct Interleave {
  uint32_t files = 1;  ///< 1: one file behind the other
  uint32_t block = 1;
};

struct RecordOptions {
  unsigned threads = 2;  ///< that look through the files
  Interleave interleave = {};
};

/// Throws driver::Error InvalidArgument for files that cannot be read or are no TFRecord files
/// (file, record, offset), and when there are no records.
std::shared_ptr<const Source> record_source(const std::vector<std::string>& files,
                                            const std::vector<Feature>& features,
                                            const RecordOptions& options = {});

}  // namespace tpu::input
