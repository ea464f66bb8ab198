// Compilations side by side share nothing: every thread gets the bytes that one thread alone gets.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "board/board_loader.hpp"
#include "entry/compile.hpp"
#include "import/import.hpp"

namespace tpu::compiler {
namespace {

constexpr std::array kGraphs = {"tests/data/mlp_adam",
                                "tests/data/collectives",
                                "tests/data/control",
                                "tests/data/conv_grad",
                                "tests/golden/graphs/sum_pieces",
                                "tests/golden/graphs/moves",
                                "tests/data/bad_cholesky",
                                "tests/golden/graphs/scatter",
                                "examples/mnist_mlp/train_step",
                                "tests/data/double",
                                "tests/golden/graphs/sum_odd_groups"};
constexpr size_t kThreads = 8;

// Bytes of the executable, or the text of the error.
std::string compiled(const std::string& graph) {
  try {
    const spec::BoardParams board = spec::load_board("v3_8", {});
    Module module = import_vhlo_file(std::string(TPU_SOURCE_DIR) + "/" + graph + ".mlirbc");
    const std::vector<std::byte> bytes =
        exe::write_executable(compile(std::move(module), board).executable);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  } catch (const Error& error) {
    return error.what();
  }
}

// The threads run first: what is made at first use is made by several of them at once.
TEST(CompileThreads, EightAtOnceGiveTheBytesOfOneAlone) {
  std::array<std::array<std::string, kGraphs.size()>, kThreads> results;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&results, t] {
      for (size_t i = 0; i < kGraphs.size(); ++i) {
        const size_t graph = (i + t) % kGraphs.size();
        results[t][graph] = compiled(kGraphs[graph]);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (size_t graph = 0; graph < kGraphs.size(); ++graph) {
    const std::string alone = compiled(kGraphs[graph]);
    for (size_t t = 0; t < kThreads; ++t) {
      EXPECT_TRUE(results[t][graph] == alone) << kGraphs[graph] << ", thread " << t;
    }
  }
}

}  // namespace
}  // namespace tpu::compiler
