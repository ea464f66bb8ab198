#include "input/records/record_source.hpp"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "check/refuse.hpp"
#include "input/records/example.hpp"
#include "input/records/record_file.hpp"
#include "tpu/error.hpp"

namespace tpu::input {

using driver::refuse;

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
               const RecordOptions& options);

  uint64_t examples() const override { return examples_; }
  std::unique_ptr<Reader> reader() const override {
    return std::make_unique<RecordReader>(*this, features_);
  }
  std::string place(uint64_t example) const override {
    const Place at = find(example);
    return files_[at.file]->place(at.record);
  }
  std::string identity() const override;
  void expect(uint64_t first, uint64_t count) const override;

  struct Place {
    size_t file;
    uint64_t record;
    uint64_t end;  // of the records that come one behind the other
  };
  Place find(uint64_t example) const {
    const auto behind =
        std::upper_bound(runs_.begin(), runs_.end(), example,
                         [](uint64_t wanted, const Run& run) { return wanted < run.first; });
    const Run& run = *(behind - 1);
    const uint64_t next = behind == runs_.end() ? examples_ : behind->first;
    return {run.file, run.record + (example - run.first), run.record + (next - run.first)};
  }
  const RecordFile& file(size_t index) const { return *files_[index]; }
  // Null: the source does not keep it open.
  const OpenFile* kept(size_t index) const { return open_[index].get(); }

 private:
  std::vector<Feature> features_;
  std::vector<std::unique_ptr<RecordFile>> files_;
  std::vector<std::unique_ptr<OpenFile>> open_;
  // Records of one file that come one behind the other. An order knows 2^32 - 1 examples.
  struct Run {
    uint32_t first;  // example
    uint32_t file;
    uint32_t record;
  };

  void take_turns();
  void add_run(size_t file, uint64_t record, uint64_t count);

  Interleave interleave_;
  uint64_t examples_ = 0;
  std::vector<Run> runs_;
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
                           const std::vector<Feature>& features, const RecordOptions& options)
    : features_(features),
      files_(look_through_files(paths, options.threads)),
      open_(paths.size()),
      interleave_(options.interleave) {
  if (interleave_.files == 0 || interleave_.block == 0) {
    refuse("an interleave of 0 files or 0 records has no order");
  }
  for (size_t i = 0; i < std::min(files_.size(), kMostOpenFiles); ++i) {
    if (!files_[i]->in_memory()) {
      open_[i] = std::make_unique<OpenFile>(paths[i]);
    }
  }
  take_turns();
  if (examples_ == 0) {
    refuse(paths.empty() ? "no record files are named for the input"
                         : fmt::format("{}{}: no records", paths[0],
                                       paths.size() > 1 ? " and the others" : ""));
  }
}

void RecordSource::add_run(size_t file, uint64_t record, uint64_t count) {
  if (examples_ + count > std::numeric_limits<uint32_t>::max()) {
    refuse("the files have more records than the 2^32 - 1 that can be put in an order");
  }
  if (count > 0) {
    runs_.push_back({static_cast<uint32_t>(examples_), static_cast<uint32_t>(file),
                     static_cast<uint32_t>(record)});
    examples_ += count;
  }
}

void RecordSource::take_turns() {
  if (interleave_.files == 1) {
    for (size_t file = 0; file < files_.size(); ++file) {
      add_run(file, 0, files_[file]->records());
    }
    return;
  }
  struct Turn {
    size_t file;
    uint64_t record;
  };
  std::vector<Turn> turns;
  size_t next = 0;
  for (; next < files_.size() && turns.size() < interleave_.files; ++next) {
    turns.push_back({next, 0});
  }
  while (!turns.empty()) {
    for (Turn& turn : turns) {
      const uint64_t left = files_[turn.file]->records() - turn.record;
      const uint64_t count = std::min<uint64_t>(interleave_.block, left);
      add_run(turn.file, turn.record, count);
      turn.record += count;
      if (count == left) {
        turn = {next++, 0};
      }
    }
    std::erase_if(turns, [&](const Turn& turn) { return turn.file >= files_.size(); });
  }
}

std::string RecordSource::identity() const {
  uint64_t bytes = 0;
  uint32_t sum = 0;
  for (const auto& file : files_) {
    bytes += file->bytes();
    sum = sum * 31 + file->identity();
  }
  const std::string turns =
      interleave_.files == 1
          ? ""
          : fmt::format(", {} files in turn by {}", interleave_.files, interleave_.block);
  return fmt::format("{} records in {} files, {} bytes ({:08x}){}", examples(), files_.size(),
                     bytes, sum, turns);
}

// What comes of a file stands in one piece, in how many turns ever.
void RecordSource::expect(uint64_t first, uint64_t count) const {
  const uint64_t end = std::min(first + count, examples());
  std::map<size_t, std::pair<uint64_t, uint64_t>> pieces;
  while (first < end) {
    const Place at = find(first);
    const uint64_t here = std::min(end - first, at.end - at.record);
    pieces.try_emplace(at.file, at.record, at.record).first->second.second = at.record + here;
    first += here;
  }
  for (const auto& [file, records] : pieces) {
    if (open_[file]) {
      files_[file]->expect(*open_[file], records.first, records.second - records.first);
    }
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
  const RecordSource::Place at = source_.find(example);
  const std::span<const std::byte> bytes =
      source_.file(at.file).read(at.record, opened(at.file), buffer_, at.end);
  parser_.parse(bytes, values);
  return bytes.size();
}

}  // namespace

std::vector<std::string> find_files(const std::vector<std::string>& patterns) {
  std::vector<std::string> files;
  std::set<std::filesystem::path> known;
  const auto add = [&](const std::string& file) {
    if (known.insert(std::filesystem::absolute(file).lexically_normal()).second) {
      files.push_back(file);
    }
  };
  for (const std::string& pattern : patterns) {
    if (std::error_code none; std::filesystem::exists(pattern, none)) {
      add(pattern);
      continue;
    }
    glob_t found{};
    const int result = ::glob(pattern.c_str(), GLOB_BRACE, nullptr, &found);
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      add(found.gl_pathv[i]);
    }
    ::globfree(&found);
    if (result != 0) {
      throw driver::Error(driver::ErrorCode::kInvalidArgument,
                          fmt::format("{}: no such file", pattern));
    }
  }
  return files;
}

std::string pattern_in(const std::string& folder, const std::string& pattern) {
  const auto path = (std::filesystem::path(folder) / pattern).lexically_normal();
  if (std::error_code none; std::filesystem::exists(path, none)) {
    return path.string();
  }
  std::string quoted;
  for (const char c : folder) {
    quoted += std::string_view("*?[]{},\\").find(c) == std::string_view::npos ? "" : "\\";
    quoted += c;
  }
  return (std::filesystem::path(quoted) / pattern).lexically_normal().string();
}

std::shared_ptr<const Source> record_source(const std::vector<std::string>& files,
                                            const std::vector<Feature>& features,
                                            const RecordOptions& options) {
  return std::make_shared<RecordSource>(files, features, options);
}

}  // namespace tpu::input
