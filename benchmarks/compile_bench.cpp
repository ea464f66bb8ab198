// Speed of the compiler in process: each artifact is imported, compiled and encoded several times
// for one board, whose description is read once. Prints milliseconds of this thread's CPU time: of
// each artifact the median of its compilations, then the median and the largest of all artifacts.
// Usage: compile-bench [--board FILE] [--repeat N] [--json] ARTIFACT...
// With the artifacts of tests/data/one_op it is the cost of a tiny program.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "board/board_loader.hpp"
#include "entry/compile.hpp"
#include "import/file.hpp"
#include "timing.hpp"

namespace {

using namespace tpu;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The first compilation fills the host's caches and is not counted.
double milliseconds(const std::string& path, const spec::BoardParams& board, int repeat) {
  const std::vector<std::byte> artifact = compiler::read_file(path);
  std::vector<double> took;
  for (int i = 0; i <= repeat; ++i) {
    const double begin = benchmarks::thread_seconds();
    const compiler::Compiled out = compiler::compile(artifact, "bench", board);
    const std::vector<std::byte> file = exe::write_executable(out.executable);
    took.push_back((benchmarks::thread_seconds() - begin) * 1e3);
  }
  took.erase(took.begin());
  return median(std::move(took));
}

int run(int argc, char** argv) {
  std::vector<std::string> paths;
  std::string board_file = "v3_8";
  int repeat = 20;
  bool json = false;
  CLI::App app("Milliseconds that the compiler takes, in process", "compile-bench");
  app.add_option("artifacts", paths, "StableHLO artifacts (.mlirbc)")->required();
  app.add_option("--board", board_file, "v3_8, v2_8, or a board file");
  app.add_option("--repeat", repeat, "compilations of each that are counted")
      ->check(CLI::PositiveNumber);
  app.add_flag("--json", json, "one object for programs");
  CLI11_PARSE(app, argc, argv);
  const spec::BoardParams board = spec::load_board(board_file);
  std::vector<double> all;
  for (const std::string& path : paths) {
    all.push_back(milliseconds(path, board, repeat));
    if (!json) {
      std::printf("%-32s %8.3f ms\n", std::filesystem::path(path).stem().c_str(), all.back());
    }
  }
  const double largest = *std::max_element(all.begin(), all.end());
  const double middle = median(std::move(all));
  std::printf(json ? "{\"artifacts\": %zu, \"median_ms\": %.3f, \"max_ms\": %.3f}\n"
                   : "%zu artifacts: median %.3f ms, largest %.3f ms\n",
              paths.size(), middle, largest);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "compile-bench: %s\n", e.what());
    return 1;
  }
}
