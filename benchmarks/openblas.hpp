// OpenBLAS for comparisons, loaded at run time so that nothing here depends on it. One thread; the
// environment variable OPENBLAS_CORETYPE chooses its instruction set.
#pragma once

#include <dlfcn.h>

#include <string>

namespace tpu::benchmarks {

struct OpenBlas {
  using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float* a, int lda, const float* b, int ldb, float beta, float* c,
                         int ldc);
  static constexpr int kRowMajor = 101;
  static constexpr int kNoTrans = 111;
  static constexpr int kTrans = 112;

  Sgemm sgemm = nullptr;  // null: not installed
  std::string core;
};

inline OpenBlas load_openblas() {
  OpenBlas blas;
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return blas;
  }
  using SetThreads = void (*)(int);
  using CoreName = char* (*)();
  const auto set_threads = reinterpret_cast<SetThreads>(dlsym(library, "openblas_set_num_threads"));
  const auto core_name = reinterpret_cast<CoreName>(dlsym(library, "openblas_get_corename"));
  blas.sgemm = reinterpret_cast<OpenBlas::Sgemm>(dlsym(library, "cblas_sgemm"));
  if (set_threads == nullptr || core_name == nullptr) {
    blas.sgemm = nullptr;
    return blas;
  }
  set_threads(1);
  blas.core = core_name();
  return blas;
}

}  // namespace tpu::benchmarks
