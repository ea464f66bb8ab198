// Fast MXU engine with AMX against oneDNN's bf16 matmul on one thread in the same run, by CPU time
// of the thread: bf16 operands to f32 result. The engine packs row-major operands anew in each run;
// oneDNN gets its operands in the blocked layouts that it asks for. Fails when the results differ.
// oneDNN has no bf16 for hosts without AVX-512: --f32 gives it the same values as f32.
// All lie in huge pages, as a core's memory does.
// --f32-operands: the engine gets them as f32, too, and rounds them.
// Built where oneDNN is installed (libdnnl-dev). Usage: OMP_NUM_THREADS=1 onednn-bench [--size N]
// [--m M] [--k K] [--n N] [--simd NAME] [--f32] [--f32-operands]; prints one JSON object.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dnnl.hpp>
#include <list>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernel/host_pages.hpp"
#include "mxu/mxu_fast.hpp"
#include "square_job.hpp"
#include "timing.hpp"

namespace {

using tpu::benchmarks::thread_seconds;

constexpr int kRounds = 50;

struct Options {
  int64_t m = 512;
  int64_t k = 512;
  int64_t n = 512;
  std::string simd = "amx";
  bool f32 = false;
  bool f32_operands = false;
};

// Bytes in huge pages.
class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(bytes), data_(tpu::model::map_host_pages(bytes)) {}
  ~Pages() { tpu::model::unmap_host_pages(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  uint8_t* data() const { return data_; }

 private:
  size_t bytes_;
  uint8_t* data_;
};

// A copy of values.
template <class T>
class Copy {
 public:
  explicit Copy(const std::vector<T>& values) : pages_(values.size() * sizeof(T)) {
    std::ranges::copy(values, data());
  }
  T* data() const { return reinterpret_cast<T*>(pages_.data()); }

 private:
  Pages pages_;
};

// C[m,n] = A[m,k] x B[k,n], operands in oneDNN's own layouts.
class OneDnnMatmul {
 public:
  using Memory = dnnl::memory;

  // `a` and `b`: row-major values of `type`.
  OneDnnMatmul(const Options& options, Memory::data_type type, void* a, void* b)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const Memory::dims dims_a{options.m, options.k};
    const Memory::dims dims_b{options.k, options.n};
    const auto any = [type](const Memory::dims& dims) {
      return Memory::desc(dims, type, Memory::format_tag::any);
    };
    const Memory::desc result({options.m, options.n}, Memory::data_type::f32,
                              Memory::format_tag::ab);
    const dnnl::matmul::primitive_desc made(dnnl::matmul::desc(any(dims_a), any(dims_b), result),
                                            engine_);
    implementation_ = made.impl_info_str();
    const auto blocked = [&](const Memory::dims& dims, void* values, const Memory::desc& layout) {
      Memory from(Memory::desc(dims, type, Memory::format_tag::ab), engine_, values);
      Memory to(layout, engine_, pages_.emplace_back(layout.get_size()).data());
      dnnl::reorder(from, to).execute(stream_, from, to);
      stream_.wait();
      return to;
    };
    result_ =
        Memory(made.dst_desc(), engine_, pages_.emplace_back(made.dst_desc().get_size()).data());
    arguments_ = {{DNNL_ARG_SRC, blocked(dims_a, a, made.src_desc())},
                  {DNNL_ARG_WEIGHTS, blocked(dims_b, b, made.weights_desc())},
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
  std::list<Pages> pages_;
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
    return {options, dnnl::memory::data_type::f32, wide_a.data(), wide_b.data()};
  }
  try {
    return {options, dnnl::memory::data_type::bf16, a.data(), b.data()};
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) {
      throw std::runtime_error("oneDNN has no bf16 matmul for this host; --f32 takes its f32 one");
    }
    throw;
  }
}

// Both sum products below 4 in f32, in orders of their own.
void check_equal(int64_t k, std::span<const float> ours, const float* theirs) {
  const double bound = 1e-5 * static_cast<double>(k);
  for (size_t i = 0; i < ours.size(); ++i) {
    if (!(std::fabs(static_cast<double>(ours[i]) - static_cast<double>(theirs[i])) <= bound)) {
      throw std::runtime_error("results differ at element " + std::to_string(i) + ": " +
                               std::to_string(ours[i]) + " against " + std::to_string(theirs[i]));
    }
  }
}

void measure(const Options& options) {
  const auto [m, k, n] = std::array{options.m, options.k, options.n};
  std::mt19937 random(1);
  std::vector<uint16_t> a = random_values(static_cast<size_t>(m * k), random);
  std::vector<uint16_t> b = random_values(static_cast<size_t>(k * n), random);
  const Copy half_a(a);
  const Copy half_b(b);
  const Copy wide_a(widened(a));
  const Copy wide_b(widened(b));
  const Copy c(std::vector<float>(static_cast<size_t>(m * n)));
  const tpu::model::MxuJob job =
      options.f32_operands
          ? tpu::benchmarks::dense_job(m, k, n, wide_a.data(), wide_b.data(), c.data())
          : tpu::benchmarks::dense_job(m, k, n, half_a.data(), half_b.data(), c.data());
  const tpu::model::MxuSimd simd = tpu::model::mxu_simd_from_name(options.simd);
  tpu::model::MxuFastEngine engine(tpu::spec::MxuShape{}, simd);
  OneDnnMatmul matmul = make_onednn(options, a, b);
  double ours = 1e9;
  double theirs = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const double begin = thread_seconds();
    engine.run(job);
    const double middle = thread_seconds();
    matmul.run();
    ours = std::min(ours, middle - begin);
    theirs = std::min(theirs, thread_seconds() - middle);
  }
  check_equal(k, {c.data(), static_cast<size_t>(m * n)}, matmul.result());
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(k * n);
  std::printf(
      "{\"simd\": \"%s\", \"m\": %lld, \"k\": %lld, \"n\": %lld, \"mxu_gflops\": %.3f, "
      "\"onednn_gflops\": %.3f, \"ratio\": %.3f, \"onednn\": \"%s\"}\n",
      tpu::base::simd_name(simd), static_cast<long long>(m), static_cast<long long>(k),
      static_cast<long long>(n), flops / ours * 1e-9, flops / theirs * 1e-9, theirs / ours,
      matmul.implementation().c_str());
}

// False: not understood.
bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const bool has_value = i + 1 < argc;
    if (option == "--f32") {
      options.f32 = true;
    } else if (option == "--f32-operands") {
      options.f32_operands = true;
    } else if (option == "--size" && has_value) {
      options.m = options.k = options.n = std::atoll(argv[++i]);
    } else if (option == "--m" && has_value) {
      options.m = std::atoll(argv[++i]);
    } else if (option == "--k" && has_value) {
      options.k = std::atoll(argv[++i]);
    } else if (option == "--n" && has_value) {
      options.n = std::atoll(argv[++i]);
    } else if (option == "--simd" && has_value) {
      options.simd = argv[++i];
    } else {
      return false;
    }
  }
  const auto sizes = std::array{options.m, options.k, options.n};
  return std::ranges::all_of(sizes, [](int64_t size) { return size >= 1 && size <= 8192; });
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: onednn-bench [--size 1..8192] [--m M] [--k K] [--n N] [--simd NAME] "
                 "[--f32] [--f32-operands]\n");
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
