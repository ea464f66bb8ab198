// How fast a board is saved and opened again: GiB of random numbers in its HBM a second, against
// the same bytes written to a file and synced, and against a boot. Usage: snapshot-bench
// [FOLDER [GIB]]; a process can have one board, so each is opened in a child.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "file/files.hpp"
#include "tpu/tpu.hpp"

namespace {

constexpr int64_t kArrayBytes = int64_t{64} << 20;
constexpr double kGiB = 1 << 30;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// No page of it is like another one.
std::vector<std::byte> random_bytes(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(kArrayBytes);
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
  return bytes;
}

// False: it failed.
bool in_child(const std::function<void()>& work) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    int code = 0;
    try {
      work();
    } catch (const std::exception& error) {
      fmt::print(stderr, "snapshot-bench: {}\n", error.what());
      code = 1;
    }
    std::fflush(nullptr);
    std::_Exit(code);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

void report(const char* what, double seconds, double bytes) {
  fmt::print("{:<34} {:>8.3f} s {:>8.2f} GiB/s\n", what, seconds, bytes / kGiB / seconds);
}

void save(const std::string& path, int arrays) {
  tpu::Board board;
  fmt::print("{:<34} {:>8.3f} s\n", "boot", seconds_of([&] { board = tpu::Board::open(); }));
  tpu::SnapshotItems items;
  const auto cores = static_cast<int>(board.devices().size());
  for (int i = 0; i < arrays; ++i) {
    const std::vector<std::byte> bytes = random_bytes(static_cast<uint64_t>(i));
    const tpu::HostView view(tpu::DType::kU8, {kArrayBytes}, bytes);
    tpu::Buffer buffer = board.put(i % cores, view);
    buffer.ready().wait();
    items.arrays[std::to_string(i)] =
        tpu::Array(tpu::DType::kU8, {kArrayBytes}, {{kArrayBytes}, {{0}}, true}, {buffer});
  }
  const double seconds = seconds_of([&] { board.save_snapshot(path, items); });
  report("save", seconds, static_cast<double>(std::filesystem::file_size(path)));
}

void open_again(const std::string& path) {
  tpu::OpenOptions options;
  options.snapshot = path;
  tpu::Board board;
  const double seconds = seconds_of([&] { board = tpu::Board::open(options); });
  report("open", seconds, static_cast<double>(std::filesystem::file_size(path)));
}

// What the disk takes: the same bytes to a file that is synced.
void write_plain(const std::string& path, int arrays) {
  std::vector<std::vector<std::byte>> all;
  for (int i = 0; i < arrays; ++i) {
    all.push_back(random_bytes(static_cast<uint64_t>(i)));
  }
  const double seconds = seconds_of([&] {
    tpu::driver::FileWriter file(path, tpu::driver::Durability::kSynced);
    for (const std::vector<std::byte>& bytes : all) {
      file.add(bytes);
    }
    file.finish();
  });
  report("the same bytes written and synced", seconds,
         static_cast<double>(arrays) * static_cast<double>(kArrayBytes));
}

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path folder =
      argc > 1 ? argv[1] : std::filesystem::temp_directory_path().string();
  const double gib = argc > 2 ? std::atof(argv[2]) : 2.0;
  const int arrays = static_cast<int>(gib * kGiB / static_cast<double>(kArrayBytes));
  const std::string path = folder / "snapshot-bench.snap";
  const bool done = arrays > 0 && in_child([&] { save(path, arrays); }) &&
                    in_child([&] { open_again(path); }) &&
                    in_child([&] { write_plain(path, arrays); });
  std::filesystem::remove(path);
  return done ? 0 : 1;
}
