// Copies, multiply-adds and tiles at their best: the shortest of several runs each, in processor
// time of the thread, so that other work on the host counts as little as can be.
#include "cli/host_limits.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <arm_neon.h>
#endif
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <limits>
#include <new>

#include "processor/host_simd.hpp"

namespace tpu::driver {
namespace {

constexpr int kRounds = 5;

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Amount a second of the fastest round; the first one only warms up.
template <class F>
double best_rate(double amount, F&& run) {
  run();
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    const double begin = thread_seconds();
    run();
    best = std::min(best, thread_seconds() - begin);
  }
  return amount / best;
}

// Memory in huge pages where the host gives them, as the board's memories are; touched.
class Span {
 public:
  explicit Span(size_t bytes) : bytes_(bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
      throw std::bad_alloc();
    }
    at_ = static_cast<std::byte*>(at);
    madvise(at_, bytes_, MADV_HUGEPAGE);
    std::memset(at_, 1, bytes_);
  }
  ~Span() { munmap(at_, bytes_); }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  std::byte* data() const { return at_; }
  size_t size() const { return bytes_; }

 private:
  const size_t bytes_;
  std::byte* at_ = nullptr;
};

// A copy that the compiler may not leave out.
void copy(const Span& from, const Span& to, size_t bytes) {
  std::memcpy(to.data(), from.data(), bytes);
  asm volatile("" : : "r"(to.data()) : "memory");
}

#if defined(__x86_64__)
// Around the caches, as large copies of the simulation.
__attribute__((target("avx2"))) void stream(const Span& from, const Span& to, size_t bytes) {
  for (size_t i = 0; i < bytes; i += sizeof(__m256i)) {
    const __m256i value = _mm256_load_si256(reinterpret_cast<const __m256i*>(from.data() + i));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to.data() + i), value);
  }
  _mm_sfence();
}
#endif

void measure_copies(HostLimits& limits, [[maybe_unused]] bool avx2) {
  constexpr size_t kLarge = size_t{64} << 20;
  constexpr size_t kCached = size_t{64} << 10;
  constexpr size_t kTimes = 1000;
  const Span from(kLarge);
  const Span to(kLarge);
  limits.copy_bytes_per_second = best_rate(kLarge, [&] { copy(from, to, kLarge); });
#if defined(__x86_64__)
  if (avx2) {
    limits.copy_bytes_per_second = std::max(limits.copy_bytes_per_second,
                                            best_rate(kLarge, [&] { stream(from, to, kLarge); }));
  }
#endif
  limits.cached_copy_bytes_per_second = best_rate(kCached * kTimes, [&] {
    for (size_t i = 0; i < kTimes; ++i) {
      copy(from, to, kCached);
    }
  });
}

// As many sums side by side as hide the latency of a multiply-add, in registers.
constexpr size_t kSums = 12;
constexpr int64_t kSteps = 500'000;
constexpr double kFlops = 2.0 * kSums * kSteps;  // in one lane

#if defined(__x86_64__)

__attribute__((target("avx2,fma"))) void multiply_add_avx2() {
  const __m256 x = _mm256_set1_ps(0.5F);
  __m256 sums[kSums] = {};  // std::array would drop the alignment
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (__m256& sum : sums) {
      sum = _mm256_fmadd_ps(sum, x, x);
      asm volatile("" : "+x"(sum));
    }
  }
}

__attribute__((target("avx512f"))) void multiply_add_avx512() {
  const __m512 x = _mm512_set1_ps(0.5F);
  __m512 sums[kSums] = {};
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (__m512& sum : sums) {
      sum = _mm512_fmadd_ps(sum, x, x);
      asm volatile("" : "+v"(sum));
    }
  }
}

__attribute__((target("avx512f,avx512bf16"))) void multiply_add_pairs() {
  constexpr int16_t kHalf = 0x3F00;  // bf16
  const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi16(kHalf));
  __m512 sums[kSums] = {};
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (__m512& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, x, x);
      asm volatile("" : "+v"(sum));
    }
  }
}

double measure_multiply_adds(bool wide) {
  return wide ? best_rate(kFlops * 16, multiply_add_avx512)
              : best_rate(kFlops * 8, multiply_add_avx2);
}

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  std::array<uint8_t, 14> reserved{};
  std::array<uint16_t, 16> row_bytes{};
  std::array<uint8_t, 16> rows{};
};
static_assert(sizeof(TileConfig) == 64);

constexpr int64_t kTileSteps = 200'000;
constexpr double kTileFlops =
    4 * 2.0 * 16 * 16 * 32;  // of a step: 16 x 32 times 32 x 16, four times

// Four results from two tiles each way, all in registers.
__attribute__((target("amx-tile,amx-bf16"))) void multiply_tiles() {
  TileConfig config;
  std::fill_n(config.row_bytes.begin(), 8, uint16_t{64});
  std::fill_n(config.rows.begin(), 8, uint8_t{16});
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t i = 0; i < kTileSteps; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

#else

void multiply_add_neon() {
  const float32x4_t x = vdupq_n_f32(0.5F);
  float32x4_t sums[kSums] = {};
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (float32x4_t& sum : sums) {
      sum = vfmaq_f32(sum, x, x);
      asm volatile("" : "+w"(sum));
    }
  }
}
#endif

}  // namespace

std::vector<std::string> host_simd() {
  std::vector<std::string> names;
  for (const base::HostSimd simd : base::host_simd()) {
    if (simd != base::HostSimd::kScalar) {
      names.emplace_back(base::simd_name(simd));
    }
  }
  return names;
}

#if defined(__x86_64__)
HostLimits measure_host_limits(const std::string& simd) {
  const bool amx = simd == "amx";
  const bool bf16 = amx || simd == "avx512_bf16";
  const bool avx512 = bf16 || simd == "avx512";
  const bool avx2 = avx512 || simd == "avx2";
  HostLimits limits;
  measure_copies(limits, avx2);
  if (avx2) {
    limits.fma_flops = measure_multiply_adds(avx512);
  }
  if (bf16) {
    limits.bf16_flops = best_rate(kFlops * 32, multiply_add_pairs);
  }
  if (amx && base::has_simd(base::HostSimd::kAmx)) {
    limits.amx_flops = best_rate(kTileFlops * kTileSteps, multiply_tiles);
  }
  return limits;
}
#else
HostLimits measure_host_limits(const std::string& /*simd*/) {
  HostLimits limits;
  measure_copies(limits, false);
  limits.fma_flops = best_rate(kFlops * 4, multiply_add_neon);
  return limits;
}
#endif

nlohmann::ordered_json HostLimits::json() const {
  const auto known = [](double rate) {
    return rate > 0 ? nlohmann::ordered_json(rate) : nlohmann::ordered_json();
  };
  return {{"copy_bytes_per_second", known(copy_bytes_per_second)},
          {"cached_copy_bytes_per_second", known(cached_copy_bytes_per_second)},
          {"fma_flops", known(fma_flops)},
          {"bf16_flops", known(bf16_flops)},
          {"amx_flops", known(amx_flops)}};
}

}  // namespace tpu::driver
