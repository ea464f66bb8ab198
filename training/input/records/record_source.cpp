#include "input/records/record_source.hpp"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "input/records/example.hpp"
#include "input/records/record_file.hpp"
#include "tpu/error.hpp"

namespace tpu::input {
namespace {

// Files beyond these are opened when they are read: a process may have 1024 by default, as many as
// large data sets have files.
constexpr size_t kMostOpenFiles = 256;

class RecordSource;

class RecordReader : public Reader {
 public:
  RecordReader(const RecordSource& source, const std::vector<Feature>& features)
      : source_(source), parser_(features) {}

  uint64_t read(uint64_t example, std::span<Value> values) override;

 private:
  const OpenFile* opened(size_t file);

  const RecordSource& source_;
  ExampleParser parser_;
  RecordBuffer buffer_;
  std::optional<OpenFile> own_;  // the last of those that the source does not keep open
  size_t own_file_ = 0;
};

class RecordSource : public Source {
 public:
  RecordSource(const std::vector<std::string>& paths, const std::vector<Feature>& features,
               unsigned threads);

  uint64_t examples() const override { return first_.back(); }
  std::unique_ptr<Reader> reader() const override {
    return std::make_unique<RecordReader>(*this, features_);
  }
  std::string place(uint64_t example) const override {
    const auto [file, record] = find(example);
    return files_[file]->place(record);
  }
  std::string identity() const override;
  void expect(uint64_t first, uint64_t count) const override;

  // File and record in it.
  std::pair<size_t, uint64_t> find(uint64_t example) const {
    const auto behind = std::upper_bound(first_.begin(), first_.end(), example);
    const auto file = static_cast<size_t>(behind - first_.begin()) - 1;
    return {file, example - first_[file]};
  }
  const RecordFile& file(size_t index) const { return *files_[index]; }
  // Null: the source does not keep it open.
  const OpenFile* kept(size_t index) const { return open_[index].get(); }

 private:
  std::vector<Feature> features_;
  std::vector<std::unique_ptr<RecordFile>> files_;
  std::vector<std::unique_ptr<OpenFile>> open_;
  std::vector<uint64_t> first_ = {0};  // example of each file, and the end
};

// All files, or the error of the first in order that has one.
std::vector<std::unique_ptr<RecordFile>> look_through_files(const std::vector<std::string>& paths,
                                                            unsigned threads) {
  std::vector<std::unique_ptr<RecordFile>> files(paths.size());
  std::vector<std::exception_ptr> errors(paths.size());
  std::atomic<size_t> taken = 0;
  const auto work = [&] {
    for (size_t i = taken++; i < paths.size(); i = taken++) {
      try {
        files[i] = std::make_unique<RecordFile>(paths[i]);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < std::min<size_t>(threads, paths.size()); ++i) {
      others.emplace_back(work);
    }
    work();
  }
  for (const std::exception_ptr& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
  return files;
}

RecordSource::RecordSource(const std::vector<std::string>& paths,
                           const std::vector<Feature>& features, unsigned threads)
    : features_(features), files_(look_through_files(paths, threads)), open_(paths.size()) {
  for (size_t i = 0; i < files_.size(); ++i) {
    first_.push_back(first_.back() + files_[i]->records());
    if (i < kMostOpenFiles && !files_[i]->in_memory()) {
      open_[i] = std::make_unique<OpenFile>(paths[i]);
    }
  }
  if (examples() == 0) {
    throw driver::Error(driver::ErrorCode::kInvalidArgument,
                        paths.empty() ? "no record files are named for the input"
                                      : fmt::format("{}{}: no records", paths[0],
                                                    paths.size() > 1 ? " and the others" : ""));
  }
}

std::string RecordSource::identity() const {
  uint64_t bytes = 0;
  uint32_t sum = 0;
  for (const auto& file : files_) {
    bytes += file->bytes();
    sum = sum * 31 + file->identity();
  }
  return fmt::format("{} records in {} files, {} bytes ({:08x})", examples(), files_.size(), bytes,
                     sum);
}

void RecordSource::expect(uint64_t first, uint64_t count) const {
  const uint64_t end = std::min(first + count, examples());
  while (first < end) {
    const auto [file, record] = find(first);
    const uint64_t here = std::min(end - first, files_[file]->records() - record);
    if (open_[file]) {
      files_[file]->expect(*open_[file], record, here);
    }
    first += here;
  }
}

const OpenFile* RecordReader::opened(size_t file) {
  if (source_.file(file).in_memory()) {
    return nullptr;
  }
  if (const OpenFile* kept = source_.kept(file)) {
    return kept;
  }
  if (!own_ || own_file_ != file) {
    own_.emplace(source_.file(file).path());
    own_file_ = file;
  }
  return &*own_;
}

uint64_t RecordReader::read(uint64_t example, std::span<Value> values) {
  const auto [file, record] = source_.find(example);
  const std::span<const std::byte> bytes = source_.file(file).read(record, opened(file), buffer_);
  parser_.parse(bytes, values);
  return bytes.size();
}

}  // namespace

std::vector<std::string> find_files(const std::vector<std::string>& patterns) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    glob_t found{};
    const int result = ::glob(pattern.c_str(), GLOB_BRACE, nullptr, &found);
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      files.emplace_back(found.gl_pathv[i]);
    }
    ::globfree(&found);
    if (result != 0) {
      throw driver::Error(driver::ErrorCode::kInvalidArgument,
                          fmt::format("{}: there is no such file", pattern));
    }
  }
  return files;
}

std::shared_ptr<const Source> record_source(const std::vector<std::string>& files,
                                            const std::vector<Feature>& features,
                                            unsigned threads) {
  return std::make_shared<RecordSource>(files, features, threads);
}

}  // namespace tpu::input
