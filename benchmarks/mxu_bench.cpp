// Fast MXU engine against OpenBLAS sgemm on one thread in the same run: f32 operands in memory to
// f32 result, packing included. OpenBLAS is loaded at run time; without it only the engine is
// timed. Usage: mxu-bench [--size N] [--simd scalar|avx2|avx512|amx] [--json].
// OPENBLAS_CORETYPE=Haswell in the environment makes OpenBLAS use AVX2.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "mxu/mxu_fast.hpp"
#include "openblas.hpp"
#include "square_job.hpp"
#include "timing.hpp"

namespace {

using tpu::benchmarks::keep_best;
using tpu::benchmarks::load_openblas;
using tpu::benchmarks::OpenBlas;

struct Figures {
  double ours = 0;    // operations a second
  double theirs = 0;  // 0: no OpenBLAS
};

// Best of many runs of each, taken in turns, so that both see the same host.
Figures measure(int64_t n, tpu::model::MxuSimd simd, const OpenBlas& blas) {
  constexpr int kRounds = 25;
  const auto count = static_cast<size_t>(n * n);
  std::vector<float> a(count);
  std::vector<float> b(count);
  std::vector<float> c(count);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < count; ++i) {
    a[i] = normal(random);
    b[i] = normal(random);
  }
  const tpu::model::MxuJob job = tpu::benchmarks::square_job(n, a.data(), b.data(), c.data());
  tpu::model::MxuFastEngine engine(tpu::spec::MxuShape{}, simd);
  constexpr double kNever = 1e9;
  double ours = kNever;
  double theirs = kNever;
  const int size = static_cast<int>(n);
  for (int round = 0; round < kRounds; ++round) {
    keep_best(ours, [&] { engine.run(job); });
    if (blas.sgemm != nullptr) {
      keep_best(theirs, [&] {
        blas.sgemm(OpenBlas::kRowMajor, OpenBlas::kNoTrans, OpenBlas::kNoTrans, size, size, size, 1,
                   a.data(), size, b.data(), size, 0, c.data(), size);
      });
    }
  }
  const double flops = tpu::benchmarks::square_flops(n);
  return {flops / ours, blas.sgemm != nullptr ? flops / theirs : 0};
}

void print(const Figures& figures, int64_t n, const char* simd, const OpenBlas& blas, bool json) {
  if (json) {
    std::printf(
        "{\"simd\": \"%s\", \"size\": %lld, \"mxu_gflops\": %.3f, \"openblas_gflops\": %.3f, "
        "\"openblas_core\": \"%s\"}\n",
        simd, static_cast<long long>(n), figures.ours * 1e-9, figures.theirs * 1e-9,
        blas.core.c_str());
    return;
  }
  std::printf("mxu %-7s %lld^3: %.1f GFLOP/s", simd, static_cast<long long>(n),
              figures.ours * 1e-9);
  if (figures.theirs > 0) {
    std::printf(", %.2f x OpenBLAS sgemm (%s, %.1f GFLOP/s)", figures.ours / figures.theirs,
                blas.core.c_str(), figures.theirs * 1e-9);
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  int64_t n = 512;
  std::string simd;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const bool has_value = i + 1 < argc;
    if (option == "--json") {
      json = true;
    } else if (option == "--size" && has_value) {
      n = std::atoll(argv[++i]);
    } else if (option == "--simd" && has_value) {
      simd = argv[++i];
    } else {
      std::fprintf(stderr, "usage: mxu-bench [--size N] [--simd NAME] [--json]\n");
      return 2;
    }
  }
  if (n < 1 || n > 8192) {
    std::fprintf(stderr, "mxu-bench: --size must be 1..8192\n");
    return 2;
  }
  try {
    const OpenBlas blas = load_openblas();
    std::vector<tpu::model::MxuSimd> wanted = tpu::base::host_simd();
    if (!simd.empty()) {
      wanted = {tpu::model::mxu_simd_from_name(simd)};
    }
    for (const tpu::model::MxuSimd each : wanted) {
      if (simd.empty() && each == tpu::model::MxuSimd::kScalar && wanted.size() > 1) {
        continue;  // minutes for little
      }
      print(measure(n, each, blas), n, tpu::base::simd_name(each), blas, json);
    }
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "mxu-bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
