// Fast MXU engine against OpenBLAS sgemm, both on one thread in the same run, packing included.
// Usage: mxu_bench [size] ; for the AVX2 comparison run it with OPENBLAS_CORETYPE=Haswell.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "mxu/mxu_fast.hpp"

#ifdef TPU_HAVE_OPENBLAS
extern "C" {
void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                 const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);
void openblas_set_num_threads(int count);
char* openblas_get_corename();
}
#endif

namespace {

template <class F>
double best_seconds(F&& run) {
  double best = 1e9;
  for (int i = 0; i < 15; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count());
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t n = argc > 1 ? std::atoll(argv[1]) : 512;
  if (n < 1 || n > 8192) {
    std::fprintf(stderr, "mxu_bench: size must be 1..8192\n");
    return 2;
  }
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
  const double flops =
      2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  double theirs = 0;
#ifdef TPU_HAVE_OPENBLAS
  openblas_set_num_threads(1);
  const int size = static_cast<int>(n);
  theirs = flops / best_seconds([&] {
             cblas_sgemm(101, 111, 111, size, size, size, 1, a.data(), size, b.data(), size, 0,
                         c.data(), size);
           });
  std::printf("openblas sgemm (%s): %.1f GFLOP/s\n", openblas_get_corename(), theirs * 1e-9);
#endif
  tpu::model::MxuJob job;
  job.lhs = reinterpret_cast<const uint8_t*>(a.data());
  job.rhs = reinterpret_cast<const uint8_t*>(b.data());
  job.out = reinterpret_cast<uint8_t*>(c.data());
  job.m_count[3] = job.k_count[2] = job.n_count[1] = n;
  job.m_lhs_stride[3] = job.m_out_stride[3] = job.k_rhs_stride[2] = n * 4;
  job.n_rhs_stride[1] = job.n_out_stride[1] = 4;
  for (const tpu::model::MxuSimd simd : tpu::model::mxu_host_simd()) {
    if (simd == tpu::model::MxuSimd::kScalar) {
      continue;
    }
    tpu::model::MxuFastEngine engine(tpu::spec::MxuShape{}, simd);
    const double ours = flops / best_seconds([&] { engine.run(job); });
    std::printf("mxu %-7s %lld^3: %.1f GFLOP/s", tpu::model::mxu_simd_name(simd),
                static_cast<long long>(n), ours * 1e-9);
    if (theirs > 0) {
      std::printf(", %.2f x openblas", ours / theirs);
    }
    std::printf("\n");
  }
  return 0;
}
