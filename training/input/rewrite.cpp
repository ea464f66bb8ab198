#include "input/rewrite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "file/files.hpp"
#include "format/npy.hpp"
#include "input/batch_pipeline.hpp"
#include "input/records/example.hpp"
#include "input/records/record_writer.hpp"
#include "tpu/error.hpp"

namespace tpu::input {
namespace {

// What threads tell of their work, and the first error.
class Tally {
 public:
  Tally(uint64_t all, const RewriteProgress& progress) : all_(all), progress_(progress) {}

  void add(uint64_t examples) {
    const std::lock_guard lock(mutex_);
    done_ += examples;
    if (progress_) {
      progress_(done_, all_);
    }
  }
  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) {
      error_ = std::move(error);
    }
    failed_ = true;
  }
  bool failed() const { return failed_; }
  void finish() const {
    if (error_) {
      std::rethrow_exception(error_);
    }
  }

 private:
  std::mutex mutex_;
  const uint64_t all_;
  const RewriteProgress& progress_;
  uint64_t done_ = 0;
  std::exception_ptr error_;
  std::atomic<bool> failed_ = false;
};

void write_shard(const std::string& path, Compression compression, const Source& source,
                 const std::vector<std::string>& names, uint64_t first, uint64_t end,
                 Tally& tally) {
  constexpr uint64_t kTold = 256;  // examples
  const std::unique_ptr<Reader> reader = source.reader();
  std::vector<Value> values(names.size());
  std::vector<NamedValue> named(names.size());
  RecordWriter writer(path, compression);
  uint64_t told = first;
  for (uint64_t example = first; example < end; ++example) {
    reader->read(example, values);
    for (size_t i = 0; i < names.size(); ++i) {
      named[i] = {names[i], values[i]};
    }
    writer.add(format_example(named));
    if (example - told >= kTold) {
      tally.add(example - told);
      told = example;
    }
    if (tally.failed()) {
      return;
    }
  }
  source.check();
  writer.finish();
  tally.add(end - told);
}

}  // namespace

std::vector<std::string> RecordFiles::paths() const {
  constexpr const char* kEnds[] = {"", ".gz", ".zz"};
  std::vector<std::string> paths;
  for (unsigned i = 0; i < shards; ++i) {
    paths.push_back(fmt::format("{}-{:05}-of-{:05}.tfrecord{}", prefix, i, shards,
                                kEnds[static_cast<size_t>(compression)]));
  }
  return paths;
}

void write_records(const std::vector<std::string>& names, const std::vector<Column>& columns,
                   const RecordFiles& files, const RewriteProgress& progress) {
  const std::shared_ptr<const Source> source = array_source(columns);
  const uint64_t all = source->examples();
  if (files.shards == 0 || files.shards > all) {
    throw driver::Error(
        driver::ErrorCode::kInvalidArgument,
        fmt::format("cannot write {} files: expected 1 to {}, the number of examples", files.shards,
                    all));
  }
  const std::vector<std::string> paths = files.paths();
  Tally tally(all, progress);
  std::atomic<size_t> taken = 0;
  const auto work = [&] {
    try {
      for (size_t i = taken++; i < paths.size() && !tally.failed(); i = taken++) {
        write_shard(paths[i], files.compression, *source, names, all * i / paths.size(),
                    all * (i + 1) / paths.size(), tally);
      }
    } catch (...) {
      tally.fail(std::current_exception());
    }
  };
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < std::min<size_t>(files.threads, paths.size()); ++i) {
      others.emplace_back(work);
    }
    work();
  }
  tally.finish();
}

std::vector<std::string> array_paths(const std::string& folder,
                                     const std::vector<Feature>& features) {
  std::vector<std::string> paths;
  for (const Feature& feature : features) {
    if (feature.name.empty() || feature.name.find('/') != std::string::npos) {
      throw driver::Error(
          driver::ErrorCode::kInvalidArgument,
          fmt::format("feature '{}' cannot name a file; choose the features to write",
                      feature.name));
    }
    paths.push_back(fmt::format("{}/{}.npy", folder, feature.name));
  }
  return paths;
}

void write_arrays(std::shared_ptr<const Source> source, const std::vector<Feature>& features,
                  const std::string& folder, unsigned threads, const RewriteProgress& progress) {
  constexpr uint64_t kBatch = 256;
  const uint64_t all = source->examples();
  BatchPipeline pipeline(std::move(source), features,
                         {.batch = std::min(kBatch, all),
                          .remainder = Remainder::kKeep,
                          .epochs = 1,
                          .threads = threads});
  driver::make_folder(folder);
  std::vector<std::unique_ptr<driver::FileWriter>> files;
  for (const std::string& path : array_paths(folder, features)) {
    const Feature& feature = features[files.size()];
    Shape shape = feature.shape;
    shape.insert(shape.begin(), static_cast<int64_t>(all));
    files.push_back(std::make_unique<driver::FileWriter>(path));
    const std::string header = driver::npy_header(feature.type, shape);
    files.back()->add(std::as_bytes(std::span(header)));
  }
  uint64_t done = 0;
  for (Batch batch; pipeline.next(batch);) {
    for (size_t i = 0; i < files.size(); ++i) {
      files[i]->add(batch.arrays[i].bytes);
    }
    done += batch.examples;
    if (progress) {
      progress(done, all);
    }
  }
  for (const auto& file : files) {
    file->finish();
  }
}

}  // namespace tpu::input
