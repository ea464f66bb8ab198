// How fast records become batches: MB of record files a second, and a second of processor time,
// checksums verified, against read() of the same files, in turns. Usage: input-bench
// [FOLDER [THREADS]]; the files are made there and kept. input.py compares other readers of them.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "input/batch_pipeline.hpp"
#include "input/records/example.hpp"
#include "input/records/record_source.hpp"
#include "input/records/record_writer.hpp"

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using tpu::driver::DType;

struct DataSet {
  std::string name;
  int64_t side;  // of an image of three channels
  uint64_t examples;
};
constexpr unsigned kFiles = 8;
constexpr int kTurns = 5;
constexpr uint64_t kEpochs = 3;  // of files in memory: the first makes the memory of the batches

// Seconds on the clock, and of all processors together, which other programs on the host change
// little.
struct Seconds {
  double wall = 0.0;
  double cpu = 0.0;
};

double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

class Watch {
 public:
  Seconds seconds() const {
    return {std::chrono::duration<double>(Clock::now() - start_).count(), cpu_seconds() - cpu_};
  }

 private:
  Clock::time_point start_ = Clock::now();
  double cpu_ = cpu_seconds();
};

// MB/s by both.
struct Rate {
  double wall;
  double cpu;
};

Rate rate(uint64_t bytes, const Seconds& seconds) {
  const double megabytes = static_cast<double>(bytes) / 1e6;
  return {megabytes / seconds.wall, megabytes / seconds.cpu};
}

// The next read comes from the disk.
void forget(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const int file = ::open(path.c_str(), O_RDONLY);
    ::fdatasync(file);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}

std::vector<std::string> make_files(const fs::path& folder, const DataSet& set) {
  std::vector<std::string> paths;
  fs::create_directories(folder);
  std::vector<std::byte> image(static_cast<size_t>(set.side * set.side * 3));
  uint32_t state = 1;
  for (unsigned file = 0; file < kFiles; ++file) {
    paths.push_back(folder / fmt::format("{}-{}.tfrecord", set.name, file));
    if (fs::exists(paths.back())) {
      continue;
    }
    tpu::input::RecordWriter writer(paths.back(), tpu::input::Compression::kNone);
    for (uint64_t i = 0; i < set.examples / kFiles; ++i) {
      for (std::byte& value : image) {
        state = state * 1664525u + 1013904223u;
        value = static_cast<std::byte>(state >> 24);
      }
      const int64_t label = static_cast<int64_t>(i % 10);
      const std::vector<tpu::input::NamedValue> values = {
          {"image", {DType::kU8, image}},
          {"label", {DType::kI64, std::as_bytes(std::span(&label, 1))}}};
      writer.add(tpu::input::format_example(values));
    }
    writer.finish();
  }
  return paths;
}

// read() over whole files, each thread some of them.
Rate raw_read(const std::vector<std::string>& paths, unsigned threads, size_t piece) {
  const Watch watch;
  uint64_t bytes = 0;
  for (const std::string& path : paths) {
    bytes += fs::file_size(path);
  }
  {
    std::vector<std::jthread> readers;
    for (unsigned t = 0; t < threads; ++t) {
      readers.emplace_back([&paths, t, threads, piece] {
        std::vector<char> buffer(piece);
        for (size_t i = t; i < paths.size(); i += threads) {
          const int file = ::open(paths[i].c_str(), O_RDONLY);
          while (::read(file, buffer.data(), buffer.size()) > 0) {
          }
          ::close(file);
        }
      });
    }
  }
  return rate(bytes, watch.seconds());
}

// When the clock starts.
enum class From : uint8_t {
  kOpening,  // what is read of the files to open them counts
  kOpened,   // and the files are on the disk again
};

// Epochs of batches; `shuffle` as in OrderOptions.
Rate batches(const std::vector<std::string>& paths, const DataSet& set, DType type,
             unsigned threads, uint64_t shuffle, uint64_t epochs, From from = From::kOpening) {
  const std::vector<tpu::input::Feature> features = {{.name = "image",
                                                      .type = type,
                                                      .shape = {set.side, set.side, 3},
                                                      .divide = type == DType::kU8 ? 1.0f : 255.0f},
                                                     {.name = "label", .type = DType::kI32}};
  Watch watch;
  tpu::input::BatchPipeline pipeline(
      tpu::input::record_source(paths, features, {.threads = threads}), features,
      {.batch = 128,
       .remainder = tpu::input::Remainder::kKeep,
       .epochs = epochs,
       .order = {.shuffle = shuffle},
       .threads = threads});
  if (from == From::kOpened) {
    forget(paths);
    watch = Watch();
  }
  tpu::input::Batch batch;
  uint64_t examples = 0;
  while (pipeline.next(batch)) {
    examples += batch.examples;
  }
  const Seconds seconds = watch.seconds();
  if (examples != epochs * set.examples) {
    throw std::runtime_error("examples are missing");
  }
  return rate(pipeline.rates().bytes, seconds);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Line {
  const char* what;
  std::function<Rate()> run;
  std::vector<double> wall = {};
  std::vector<double> cpu = {};
};

// In turns, the first line being what the others are compared with.
void compare(const char* title, std::vector<Line> lines, int turns) {
  for (int turn = 0; turn < turns; ++turn) {
    for (Line& line : lines) {
      const Rate measured = line.run();
      line.wall.push_back(measured.wall);
      line.cpu.push_back(measured.cpu);
    }
  }
  fmt::print("{}\n", title);
  for (const Line& line : lines) {
    const double wall = median(line.wall);
    fmt::print("  {:<36} {:6.0f} MB/s  {:5.1f} %  {:6.0f} MB a CPU second\n", line.what, wall,
               100 * wall / median(lines[0].wall), median(line.cpu));
  }
}

void measure(const fs::path& folder, const DataSet& set, unsigned threads) {
  const std::vector<std::string> paths = make_files(folder, set);
  const auto record = static_cast<size_t>(set.side * set.side * 3) + 100;
  const auto raw = [&](size_t piece) {
    return [=, &paths] { return raw_read(paths, threads, piece); };
  };
  const auto ours = [&](DType type, uint64_t shuffle, uint64_t epochs = kEpochs) {
    return [=, &paths, &set] { return batches(paths, set, type, threads, shuffle, epochs); };
  };
  const auto opened = [&](uint64_t shuffle) {
    return [=, &paths, &set] {
      return batches(paths, set, DType::kU8, threads, shuffle, 1, From::kOpened);
    };
  };
  const auto cold = [&](std::function<Rate()> run) {
    return [run = std::move(run), &paths] {
      forget(paths);
      return run();
    };
  };
  constexpr size_t kPiece = size_t{1} << 20;
  compare(fmt::format("{} records ({} bytes), {} threads, from the disk", set.name, record, threads)
              .c_str(),
          {{"read() of 1 MiB", cold(raw(kPiece))},
           {"batches of u8, as stored", cold(ours(DType::kU8, 0, 1))},
           {"batches of u8, shuffled by 1000", cold(ours(DType::kU8, 1000, 1))},
           {"an epoch of opened files, as stored", opened(0)},
           {"an epoch of them, shuffled", opened(1000)}},
          kTurns);
  raw(kPiece)();
  compare(fmt::format("{} records ({} bytes), {} threads, from memory", set.name, record, threads)
              .c_str(),
          {{"read() of 1 MiB", raw(kPiece)},
           {"read() of a record", raw(record)},
           {"batches of u8, as stored", ours(DType::kU8, 0)},
           {"batches of u8, shuffled by 1000", ours(DType::kU8, 1000)},
           {"batches of f32, / 255, shuffled", ours(DType::kF32, 1000)}},
          kTurns);
}

}  // namespace

int main(int argc, char** argv) {
  const fs::path folder = argc > 1 ? argv[1] : fs::temp_directory_path() / "tpuboard_input_bench";
  const unsigned threads = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 2;
  for (const DataSet& set : {DataSet{"large", 224, 4096}, DataSet{"small", 32, 131072}}) {
    measure(folder, set, threads);
  }
  return 0;
}
