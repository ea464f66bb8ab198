// Fast MXU engine on the commands of a convnet's training step, one thread: what the compiler makes
// of convolutions and dense layers (counted strides, taps, transposed operands, short K), each
// against OpenBLAS sgemm of the same M, K, N on dense operands in the same run. Several windows of
// operands are used in turn, so that they come from memory as in a step; sgemm is timed on one
// window, which stays in the caches where it fits, and on several (column "memory"). All lie in
// huge pages, as a core's memory does.
// Usage: mxu-shapes-bench [--simd NAME] [--only TEXT] [--density D] [--together N] [--rounds N]
//                         [--packing] [--kernels] [--json]
// --density: part of lhs's elements that are not zero, 0 to 1, at random places.
// --together: commands of so many cores at once, which share rhs.
// --kernels: which kernels ran, by their share of the multiply-adds (docs/matrix_kernels.md).
// --packing: how much of the engine's time goes into rounding and packing (least of the rounds).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernel/host_pages.hpp"
#include "kernel/host_profile.hpp"
#include "mxu/mxu_fast.hpp"
#include "mxu/mxu_kernel_table.hpp"
#include "openblas.hpp"
#include "timing.hpp"

namespace {

using tpu::benchmarks::OpenBlas;
using tpu::benchmarks::thread_seconds;
using tpu::model::MxuJob;

constexpr int64_t kF32 = 4;

// A command on operands that begin at byte 0 of three arrays (or at an offset), and its sizes.
struct Shape {
  std::string name;
  MxuJob job;
  int64_t lhs_floats = 0;
  int64_t rhs_floats = 0;
  int64_t out_floats = 0;
  int64_t rhs_first = 0;  // float where the first element lies (negative strides)
};

// M: pixels of images [side][side] with `out` channels; a pixel's window begins at its own place in
// images [in][in] with `channels`. N: 128 of the out channels, as rhs has them side by side.
Shape image_rows(const std::string& name, int64_t images, int64_t side, int64_t in,
                 int64_t channels, int64_t out) {
  Shape s;
  s.name = name + ", " + std::to_string(images) + " image";
  MxuJob& j = s.job;
  j.m_count = {1, images, side, side};
  j.m_lhs_stride = {0, in * in * channels * kF32, in * channels * kF32, channels * kF32};
  j.m_out_stride = {0, side * side * out * kF32, side * out * kF32, out * kF32};
  j.n_count = {1, 128};
  j.n_rhs_stride = {0, kF32};
  j.n_out_stride = {0, kF32};
  s.lhs_floats = images * in * in * channels;
  s.out_floats = images * side * side * out;
  return s;
}

// Taps kh x kw, K = channels; or taps kh, K = kw x channels.
Shape conv_forward(int64_t images, bool join_kw) {
  constexpr int64_t in = 26;
  constexpr int64_t c = 256;
  Shape s = image_rows("conv2 forward", images, 24, in, c, c);
  s.name += join_kw ? ", K runs of 768" : ", K runs of 256";
  MxuJob& j = s.job;
  j.t_count = {1, 3, join_kw ? 1 : 3};
  j.t_lhs_stride = {0, in * c * kF32, c * kF32};
  j.t_rhs_stride = {0, 3 * c * c * kF32, c * c * kF32};
  j.k_count = {1, 1, join_kw ? 3 * c : c};
  j.k_rhs_stride = {0, 0, c * kF32};
  s.rhs_floats = 9 * c * c;
  return s;
}

// dy padded by two, weights reversed over the taps and transposed.
Shape conv_input_gradient(int64_t images) {
  constexpr int64_t in = 28;
  constexpr int64_t c = 256;
  Shape s = image_rows("conv2 input gradient", images, 26, in, c, c);
  MxuJob& j = s.job;
  j.t_count = {1, 3, 3};
  j.t_lhs_stride = {0, in * c * kF32, c * kF32};
  j.t_rhs_stride = {0, -3 * c * c * kF32, -c * c * kF32};
  j.k_count = {1, 1, c};
  j.k_rhs_stride = {0, 0, kF32};
  j.n_rhs_stride = {0, c * kF32};
  j.rhs_transposed = true;
  s.rhs_first = 8 * c * c;
  s.rhs_floats = 9 * c * c;
  return s;
}

// One channel in: taps are the rows of the window, K its columns.
Shape conv1_forward(int64_t images) {
  constexpr int64_t in = 28;
  constexpr int64_t c = 256;
  Shape s = image_rows("conv1 forward", images, 26, in, 1, c);
  s.name += ", 3 taps of K = 3";
  MxuJob& j = s.job;
  j.t_count = {1, 1, 3};
  j.t_lhs_stride = {0, 0, in * kF32};
  j.t_rhs_stride = {0, 0, 3 * c * kF32};
  j.k_count = {1, 1, 3};
  j.k_rhs_stride = {0, 0, c * kF32};
  s.rhs_floats = 9 * c;
  return s;
}

// M: rows of dy transposed, [rows][pixels of images [side][side]] = K; rhs: images [in][in] with
// `channels`, N of them a window's row each. Adds to outputs of `out` columns.
Shape image_sums(const std::string& name, int64_t images, int64_t rows, int64_t side, int64_t in,
                 int64_t channels, int64_t out) {
  const int64_t k = images * side * side;
  Shape s;
  s.name = name + ", " + std::to_string(images) + " image";
  MxuJob& j = s.job;
  j.accumulate = true;
  j.m_count[3] = rows;
  j.m_lhs_stride[3] = k * kF32;
  j.m_out_stride[3] = out * kF32;
  j.k_count = {images, side, side};
  j.k_rhs_stride = {in * in * channels * kF32, in * channels * kF32, channels * kF32};
  s.lhs_floats = rows * k;
  s.rhs_floats = images * in * in * channels;
  s.out_floats = rows * out;
  return s;
}

// N = half of a run of kw x ci. `channels` of dy: all 256, or as many as the result has room for.
Shape conv_weight_gradient(int64_t images, int64_t channels) {
  const std::string name = "conv2 weight gradient, M = " + std::to_string(channels);
  Shape s = image_sums(name, images, channels, 24, 26, 256, 768);
  s.job.n_count = {1, 384};
  s.job.n_rhs_stride = {0, kF32};
  s.job.n_out_stride = {0, kF32};
  return s;
}

// N = kh x kw.
Shape conv1_weight_gradient(int64_t images) {
  constexpr int64_t in = 28;
  Shape s = image_sums("conv1 weight gradient", images, 128, 26, in, 1, 9);
  s.job.n_count = {3, 3};
  s.job.n_rhs_stride = {in * kF32, kF32};
  s.job.n_out_stride = {3 * kF32, kF32};
  return s;
}

Shape dense(const std::string& name, int64_t m, int64_t k, int64_t n, int64_t rhs_pitch,
            bool transposed, bool accumulate) {
  Shape s;
  s.name = name;
  MxuJob& j = s.job;
  j.accumulate = accumulate;
  j.m_count[3] = m;
  j.m_lhs_stride[3] = k * kF32;
  j.m_out_stride[3] = n * kF32;
  j.k_count[2] = k;
  j.k_rhs_stride[2] = transposed ? kF32 : rhs_pitch * kF32;
  j.n_count[1] = n;
  j.n_rhs_stride[1] = transposed ? rhs_pitch * kF32 : kF32;
  j.n_out_stride[1] = kF32;
  j.rhs_transposed = transposed;
  s.lhs_floats = m * k;
  s.rhs_floats = (transposed ? n : k) * rhs_pitch;
  s.out_floats = m * n;
  return s;
}

std::vector<Shape> all_shapes() {
  return {
      conv_forward(1, false),
      conv_forward(1, true),
      conv_forward(3, false),
      conv_input_gradient(1),
      conv_input_gradient(3),
      conv_weight_gradient(1, 256),
      conv_weight_gradient(2, 88),
      conv_weight_gradient(4, 256),
      dense("dense1 forward, K = 4096", 25, 4096, 128, 256, false, true),
      dense("dense1 input gradient, N = 4096", 25, 256, 4096, 256, true, false),
      dense("dense1 weight gradient, M = 4096", 4096, 25, 128, 256, false, false),
      dense("dense2 forward", 25, 256, 128, 128, false, false),
      conv1_forward(1),
      conv1_forward(5),
      conv1_weight_gradient(5),
      dense("512 x 128 x 128", 512, 128, 128, 128, false, false),
      dense("512^3", 512, 512, 512, 512, false, false),
      dense("2048^3", 2048, 2048, 2048, 2048, false, false),
  };
}

// Floats in huge pages.
class Floats {
 public:
  explicit Floats(int64_t count)
      : bytes_(static_cast<size_t>(count) * sizeof(float)),
        data_(reinterpret_cast<float*>(tpu::model::map_host_pages(bytes_))) {}
  Floats(int64_t count, float value) : Floats(count) { std::fill_n(data_, count, value); }
  ~Floats() { tpu::model::unmap_host_pages(data_, bytes_); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  float* data() { return data_; }

 private:
  size_t bytes_;
  float* data_;
};

// Windows of so many floats that fill 96 MiB, at most 16.
int64_t window_count(int64_t floats) {
  return std::clamp<int64_t>((int64_t{96} << 20) / (floats * kF32), 1, 16);
}

// Windows of operands; f32 normals.
struct Operands {
  Operands(const Shape& shape, double density)
      : windows(window_count(shape.lhs_floats + shape.rhs_floats + shape.out_floats)),
        lhs(shape.lhs_floats * windows),
        rhs(shape.rhs_floats * windows),
        out(shape.out_floats * windows) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::bernoulli_distribution keep(density);
    const auto fill = [&](Floats& to, int64_t floats, bool sparse) {
      std::vector<float> once(static_cast<size_t>(std::min<int64_t>(floats, 1 << 16)));
      for (float& x : once) {
        x = normal(random);
      }
      for (size_t i = 0; i < static_cast<size_t>(floats * windows); ++i) {
        // Zeros never repeat, lest the host's branch predictor learn them.
        to.data()[i] = sparse && density < 1 && !keep(random) ? 0.0F : once[i % once.size()];
      }
    };
    fill(lhs, shape.lhs_floats, true);
    fill(rhs, shape.rhs_floats, false);
    fill(out, shape.out_floats, false);
  }
  // `count` jobs with the same rhs, on windows of lhs and results of their own.
  std::vector<MxuJob> jobs(const Shape& shape, int64_t round, int64_t count) {
    std::vector<MxuJob> jobs;
    const float* const weights = rhs.data() + round % windows * shape.rhs_floats + shape.rhs_first;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t w = (round * count + i) % windows;
      MxuJob& j = jobs.emplace_back(shape.job);
      j.lhs = reinterpret_cast<const uint8_t*>(lhs.data() + w * shape.lhs_floats);
      j.rhs = reinterpret_cast<const uint8_t*>(weights);
      j.out = reinterpret_cast<uint8_t*>(out.data() + w * shape.out_floats);
    }
    return jobs;
  }
  const int64_t windows;
  Floats lhs, rhs, out;
};

// sgemm of a shape on windows of dense operands.
class Sgemm {
 public:
  Sgemm(const OpenBlas& blas, const Shape& shape)
      : blas_(blas),
        m_(shape.job.rows()),
        k_(shape.job.taps() * shape.job.k()),
        n_(shape.job.n()),
        windows_(window_count(m_ * k_ + k_ * n_ + m_ * n_)),
        a_(m_ * k_ * windows_, 0.5F),
        b_(k_ * n_ * windows_, 0.25F),
        c_(m_ * n_ * windows_, 0.0F) {}
  void run(int64_t round) {
    const int64_t w = round % windows_;
    blas_.sgemm(OpenBlas::kRowMajor, OpenBlas::kNoTrans, OpenBlas::kNoTrans, static_cast<int>(m_),
                static_cast<int>(n_), static_cast<int>(k_), 1, a_.data() + w * m_ * k_,
                static_cast<int>(k_), b_.data() + w * k_ * n_, static_cast<int>(n_), 0,
                c_.data() + w * m_ * n_, static_cast<int>(n_));
  }

 private:
  const OpenBlas& blas_;
  const int64_t m_, k_, n_, windows_;
  Floats a_, b_, c_;
};

template <class F>
double seconds(F&& run) {
  const double begin = thread_seconds();
  run();
  return thread_seconds() - begin;
}

double best(const std::vector<double>& times) {
  return *std::min_element(times.begin(), times.end());
}

struct Options {
  std::string simd;
  std::string only;
  double density = 1;
  int together = 1;
  int rounds = 40;
  bool packing = false;
  bool kernels = false;
  bool json = false;
};

// Seconds that went into packing so far; 0 unless the profile is on.
double packing_seconds() {
  using tpu::model::HostWork;
  const auto counters = tpu::model::HostProfile::read();
  return static_cast<double>(counters[static_cast<size_t>(HostWork::kMxuPack)].nanoseconds) * 1e-9;
}

// "avx512.sparse 60 % avx512.dense 40 %".
std::string kernels_that_ran(const tpu::model::MxuKernelUse& use) {
  int64_t all = 0;
  for (const auto& entry : use.entries) {
    for (const int64_t terms : entry.terms) {
      all += terms;
    }
  }
  std::string text;
  for (const tpu::model::MxuSimd simd : tpu::base::host_simd()) {
    for (const auto& entry : use.entries) {
      for (size_t kind = 0; entry.set != nullptr && kind < entry.terms.size(); ++kind) {
        const auto* const row = tpu::model::mxu_kernel_row(
            tpu::base::simd_name(simd), static_cast<tpu::model::MxuKernelKind>(kind));
        if (entry.set == tpu::model::mxu_kernels(simd) && entry.terms[kind] != 0) {
          text += "  " + std::string(row->name) + " " +
                  std::to_string((100 * entry.terms[kind] + all / 2) / all) + " %";
        }
      }
    }
  }
  return text;
}

// Best of the rounds of each side, taken in turns. Prints one line.
void measure(const Shape& shape, tpu::model::MxuSimd simd, const OpenBlas& blas,
             const Options& options, bool first) {
  Operands operands(shape, options.density);
  tpu::model::MxuFastEngine engine(tpu::spec::MxuShape{}, simd);
  const int64_t m = shape.job.rows();
  const int64_t k = shape.job.taps() * shape.job.k();
  const int64_t n = shape.job.n();
  const double flops =
      2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
  const int64_t together = std::min<int64_t>(options.together, operands.windows);
  const int rounds =
      std::max(3, std::min(options.rounds, static_cast<int>(options.rounds * 1e9 / flops)));
  Sgemm sgemm(blas, shape);
  std::vector<double> ours;
  std::vector<double> packing;
  std::vector<double> cached;
  std::vector<double> memory;
  std::optional<tpu::model::MxuKernelUse> use;
  if (options.kernels) {
    use.emplace();
  }
  for (int round = 0; round < rounds; ++round) {
    const std::vector<MxuJob> jobs = operands.jobs(shape, round, together);
    const double packed = packing_seconds();
    ours.push_back(seconds([&] { engine.run_together(jobs); }) / static_cast<double>(together));
    packing.push_back((packing_seconds() - packed) / static_cast<double>(together));
    if (blas.sgemm != nullptr) {
      memory.push_back(seconds([&] { sgemm.run(round); }));
      if (round == 0) {
        sgemm.run(0);
      }
      cached.push_back(seconds([&] { sgemm.run(0); }));
    }
  }
  const auto rate = [&](const std::vector<double>& times) {
    return times.empty() ? 0 : flops / best(times) * 1e-9;
  };
  const double gflops = rate(ours);
  if (options.json) {
    std::printf(
        "%s\n  {\"name\": \"%s\", \"simd\": \"%s\", \"m\": %lld, \"k\": %lld, \"n\": %lld, "
        "\"mxu_gflops\": %.3f, "
        "\"openblas_gflops\": %.3f, \"openblas_memory_gflops\": %.3f}",
        first ? "" : ",", shape.name.c_str(), tpu::base::simd_name(simd), static_cast<long long>(m),
        static_cast<long long>(k), static_cast<long long>(n), gflops, rate(cached), rate(memory));
  } else {
    std::printf("%-44s %6lld %6lld %6lld %9.1f us %8.1f GFLOP/s", shape.name.c_str(),
                static_cast<long long>(m), static_cast<long long>(k), static_cast<long long>(n),
                best(ours) * 1e6, gflops);
    if (options.packing) {
      std::printf("  packing %3.0f %%", 100 * best(packing) / best(ours));
    }
    if (use) {
      std::printf("%s", kernels_that_ran(*use).c_str());
    }
    if (!cached.empty()) {
      std::printf("  sgemm %8.1f  %5.2f x  memory %8.1f  %5.2f x", rate(cached),
                  gflops / rate(cached), rate(memory), gflops / rate(memory));
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

int run(const Options& options) {
  const OpenBlas blas = tpu::benchmarks::load_openblas();
  const tpu::model::MxuSimd simd = tpu::model::mxu_simd_from_name(options.simd);
  if (options.json) {
    std::printf("[");
  } else {
    std::printf("%s engine; OpenBLAS: %s\n%-44s %6s %6s %6s\n", tpu::base::simd_name(simd),
                blas.sgemm != nullptr ? blas.core.c_str() : "not installed", "command", "M", "K",
                "N");
  }
  bool first = true;
  for (const Shape& shape : all_shapes()) {
    if (shape.name.find(options.only) != std::string::npos) {
      measure(shape, simd, blas, options, first);
      first = false;
    }
  }
  if (options.json) {
    std::printf("\n]\n");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const bool has_value = i + 1 < argc;
    if (option == "--packing") {
      options.packing = true;
      tpu::model::HostProfile::enable();
    } else if (option == "--kernels") {
      options.kernels = true;
    } else if (option == "--json") {
      options.json = true;
    } else if (option == "--simd" && has_value) {
      options.simd = argv[++i];
    } else if (option == "--only" && has_value) {
      options.only = argv[++i];
    } else if (option == "--density" && has_value) {
      options.density = std::clamp(std::atof(argv[++i]), 0.0, 1.0);
    } else if (option == "--together" && has_value) {
      options.together = std::max(1, std::atoi(argv[++i]));
    } else if (option == "--rounds" && has_value) {
      options.rounds = std::max(1, std::atoi(argv[++i]));
    } else {
      std::fprintf(stderr,
                   "usage: mxu-shapes-bench [--simd NAME] [--only TEXT] [--density D] "
                   "[--together N] [--rounds N] [--packing] [--kernels] [--json]\n");
      return 2;
    }
  }
  try {
    return run(options);
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "mxu-shapes-bench: %s\n", error.what());
    return 1;
  }
}
