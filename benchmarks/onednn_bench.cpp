// Fast MXU engine with AMX against oneDNN's bf16 matmul on one thread in the same run: bf16
// operands to f32 result. The engine packs row-major operands anew in each run; oneDNN gets its
// operands in the blocked layouts that it asks for. Built where oneDNN is installed (libdnnl-dev).
// Usage: OMP_NUM_THREADS=1 onednn-bench [--size N] [--simd NAME]; prints one JSON object.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dnnl.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "mxu/mxu_fast.hpp"

namespace {

constexpr int kRounds = 50;

template <class F>
void keep_best(double& best, F&& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  best = std::min(best, took.count());
}

// C[n,n] = A[n,n] x B[n,n], operands in oneDNN's own layouts.
class OneDnnMatmul {
 public:
  OneDnnMatmul(int64_t n, std::vector<uint16_t>& a, std::vector<uint16_t>& b)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using Memory = dnnl::memory;
    const Memory::dims dims{n, n};
    const auto desc = [&](Memory::data_type type, Memory::format_tag tag) {
      return Memory::desc(dims, type, tag);
    };
    const auto any = desc(Memory::data_type::bf16, Memory::format_tag::any);
    const auto plain = desc(Memory::data_type::bf16, Memory::format_tag::ab);
    const dnnl::matmul::primitive_desc made(
        dnnl::matmul::desc(any, any, desc(Memory::data_type::f32, Memory::format_tag::ab)),
        engine_);
    implementation_ = made.impl_info_str();
    const auto blocked = [&](std::vector<uint16_t>& values, const Memory::desc& layout) {
      Memory from(plain, engine_, values.data());
      Memory to(layout, engine_);
      dnnl::reorder(from, to).execute(stream_, from, to);
      stream_.wait();
      return to;
    };
    arguments_ = {{DNNL_ARG_SRC, blocked(a, made.src_desc())},
                  {DNNL_ARG_WEIGHTS, blocked(b, made.weights_desc())},
                  {DNNL_ARG_DST, Memory(made.dst_desc(), engine_)}};
    matmul_ = dnnl::matmul(made);
  }

  void run() {
    matmul_.execute(stream_, arguments_);
    stream_.wait();
  }
  const std::string& implementation() const { return implementation_; }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul matmul_;
  std::unordered_map<int, dnnl::memory> arguments_;
  std::string implementation_;
};

void measure(int64_t n, const std::string& simd) {
  const auto count = static_cast<size_t>(n * n);
  std::vector<uint16_t> a(count);
  std::vector<uint16_t> b(count);
  std::vector<float> c(count);
  std::mt19937 random(1);
  for (size_t i = 0; i < count; ++i) {  // sign and mantissa at random, 0.25 to 2
    a[i] = static_cast<uint16_t>((random() & 0x807Fu) | ((125u + random() % 3) << 7));
    b[i] = static_cast<uint16_t>((random() & 0x807Fu) | ((125u + random() % 3) << 7));
  }
  tpu::model::MxuJob job;
  job.lhs = reinterpret_cast<const uint8_t*>(a.data());
  job.rhs = reinterpret_cast<const uint8_t*>(b.data());
  job.out = reinterpret_cast<uint8_t*>(c.data());
  job.lhs_is_bf16 = job.rhs_is_bf16 = true;
  job.m_count[3] = job.k_count[2] = job.n_count[1] = n;
  job.m_lhs_stride[3] = job.k_rhs_stride[2] = n * 2;
  job.m_out_stride[3] = n * 4;
  job.n_rhs_stride[1] = 2;
  job.n_out_stride[1] = 4;
  tpu::model::MxuFastEngine engine(tpu::spec::MxuShape{}, tpu::model::mxu_simd_from_name(simd));
  OneDnnMatmul matmul(n, a, b);
  double ours = 1e9;
  double theirs = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    keep_best(ours, [&] { engine.run(job); });
    keep_best(theirs, [&] { matmul.run(); });
  }
  const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(n * n);
  std::printf(
      "{\"simd\": \"%s\", \"size\": %lld, \"mxu_gflops\": %.3f, \"onednn_gflops\": %.3f, "
      "\"onednn\": \"%s\"}\n",
      simd.c_str(), static_cast<long long>(n), flops / ours * 1e-9, flops / theirs * 1e-9,
      matmul.implementation().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  int64_t n = 512;
  std::string simd = "amx";
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--size") {
      n = std::atoll(argv[i + 1]);
    } else if (option == "--simd") {
      simd = argv[i + 1];
    }
  }
  if (argc % 2 == 0 || n < 1 || n > 8192) {
    std::fprintf(stderr, "usage: onednn-bench [--size N] [--simd NAME]\n");
    return 2;
  }
  try {
    measure(n, simd);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "onednn-bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
