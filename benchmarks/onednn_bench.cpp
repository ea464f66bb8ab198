// Fast MXU engine with AMX against oneDNN's bf16 matmul on one thread in the same run: bf16
// operands to f32 result. The engine packs row-major operands anew in each run; oneDNN gets its
// operands in the blocked layouts that it asks for. Fails when the results differ. oneDNN has no
// bf16 for hosts without AVX-512: --f32 gives it the same values as f32.
// Built where oneDNN is installed (libdnnl-dev). Usage: OMP_NUM_THREADS=1 onednn-bench [--size N]
// [--simd NAME] [--f32]; prints one JSON object.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dnnl.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "mxu/mxu_fast.hpp"
#include "square_job.hpp"
#include "timing.hpp"

namespace {

using tpu::benchmarks::keep_best;

constexpr int kRounds = 50;

struct Options {
  int64_t size = 512;
  std::string simd = "amx";
  bool f32 = false;
};

// C[n,n] = A[n,n] x B[n,n], operands in oneDNN's own layouts.
class OneDnnMatmul {
 public:
  using Memory = dnnl::memory;

  // `a` and `b`: row-major values of `type`.
  OneDnnMatmul(int64_t n, Memory::data_type type, void* a, void* b)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const Memory::dims dims{n, n};
    const Memory::desc any(dims, type, Memory::format_tag::any);
    const Memory::desc plain(dims, type, Memory::format_tag::ab);
    const Memory::desc result(dims, Memory::data_type::f32, Memory::format_tag::ab);
    const dnnl::matmul::primitive_desc made(dnnl::matmul::desc(any, any, result), engine_);
    implementation_ = made.impl_info_str();
    const auto blocked = [&](void* values, const Memory::desc& layout) {
      Memory from(plain, engine_, values);
      Memory to(layout, engine_);
      dnnl::reorder(from, to).execute(stream_, from, to);
      stream_.wait();
      return to;
    };
    result_ = Memory(made.dst_desc(), engine_);
    arguments_ = {{DNNL_ARG_SRC, blocked(a, made.src_desc())},
                  {DNNL_ARG_WEIGHTS, blocked(b, made.weights_desc())},
                  {DNNL_ARG_DST, result_}};
    matmul_ = dnnl::matmul(made);
  }

  void run() {
    matmul_.execute(stream_, arguments_);
    stream_.wait();
  }
  const std::string& implementation() const { return implementation_; }
  const float* result() const { return static_cast<const float*>(result_.get_data_handle()); }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul matmul_;
  Memory result_;
  std::unordered_map<int, Memory> arguments_;
  std::string implementation_;
};

// bf16 numbers, sign and mantissa at random, 0.25 to 2.
std::vector<uint16_t> random_values(size_t count, std::mt19937& random) {
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) {
    value = static_cast<uint16_t>((random() & 0x807Fu) | ((125u + random() % 3) << 7));
  }
  return values;
}

std::vector<float> widened(const std::vector<uint16_t>& values) {
  std::vector<float> wide(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = uint32_t{values[i]} << 16;
    std::memcpy(&wide[i], &bits, sizeof bits);
  }
  return wide;
}

OneDnnMatmul make_onednn(const Options& options, std::vector<uint16_t>& a,
                         std::vector<uint16_t>& b) {
  if (options.f32) {
    std::vector<float> wide_a = widened(a);  // the blocked layouts are copies
    std::vector<float> wide_b = widened(b);
    return {options.size, dnnl::memory::data_type::f32, wide_a.data(), wide_b.data()};
  }
  try {
    return {options.size, dnnl::memory::data_type::bf16, a.data(), b.data()};
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) {
      throw std::runtime_error("oneDNN has no bf16 matmul for this host; --f32 takes its f32 one");
    }
    throw;
  }
}

// Both sum products below 4 in f32, in orders of their own.
void check_equal(int64_t n, const std::vector<float>& ours, const float* theirs) {
  const double bound = 1e-5 * static_cast<double>(n);
  for (size_t i = 0; i < ours.size(); ++i) {
    if (!(std::fabs(static_cast<double>(ours[i]) - static_cast<double>(theirs[i])) <= bound)) {
      throw std::runtime_error("results differ at element " + std::to_string(i) + ": " +
                               std::to_string(ours[i]) + " against " + std::to_string(theirs[i]));
    }
  }
}

void measure(const Options& options) {
  const int64_t n = options.size;
  const auto count = static_cast<size_t>(n * n);
  std::mt19937 random(1);
  std::vector<uint16_t> a = random_values(count, random);
  std::vector<uint16_t> b = random_values(count, random);
  std::vector<float> c(count);
  const tpu::model::MxuJob job = tpu::benchmarks::square_job(n, a.data(), b.data(), c.data());
  const tpu::model::MxuSimd simd = tpu::model::mxu_simd_from_name(options.simd);
  tpu::model::MxuFastEngine engine(tpu::spec::MxuShape{}, simd);
  OneDnnMatmul matmul = make_onednn(options, a, b);
  double ours = 1e9;
  double theirs = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    keep_best(ours, [&] { engine.run(job); });
    keep_best(theirs, [&] { matmul.run(); });
  }
  check_equal(n, c, matmul.result());
  const double flops = tpu::benchmarks::square_flops(n);
  std::printf(
      "{\"simd\": \"%s\", \"size\": %lld, \"mxu_gflops\": %.3f, \"onednn_gflops\": %.3f, "
      "\"onednn\": \"%s\"}\n",
      tpu::model::mxu_simd_name(simd), static_cast<long long>(n), flops / ours * 1e-9,
      flops / theirs * 1e-9, matmul.implementation().c_str());
}

// False: not understood.
bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const bool has_value = i + 1 < argc;
    if (option == "--f32") {
      options.f32 = true;
    } else if (option == "--size" && has_value) {
      options.size = std::atoll(argv[++i]);
    } else if (option == "--simd" && has_value) {
      options.simd = argv[++i];
    } else {
      return false;
    }
  }
  return options.size >= 1 && options.size <= 8192;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: onednn-bench [--size 1..8192] [--simd NAME] [--f32]\n");
    return 2;
  }
  try {
    measure(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "onednn-bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
