// The processor is asked, not /proc/cpuinfo: an emulator that shows the file of its host has other
// instructions than that names.
#include "processor/host_simd.hpp"

#include <algorithm>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tpu::base {
namespace {

#if defined(__x86_64__)
// Linux gives the tile state to a process that asks for it.
bool tiles_permitted() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool has_tiles() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kFeatures = 7;
  constexpr unsigned kTilesAndBf16 = 1U << 24 | 1U << 22;
  return __get_cpuid_count(kFeatures, 0, &eax, &ebx, &ecx, &edx) != 0 &&
         (edx & kTilesAndBf16) == kTilesAndBf16;
}

std::vector<HostSimd> ask_processor() {
  std::vector<HostSimd> sets = {HostSimd::kScalar};
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi")) {
    return sets;
  }
  sets.push_back(HostSimd::kAvx2);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq")) {
    return sets;
  }
  sets.push_back(HostSimd::kAvx512);
  if (__builtin_cpu_supports("avx512bf16")) {
    // VDPBF16PS takes the time of one FMA on AMD's hosts, and of four on Intel's for the work of
    // two (an Emerald Rapids: docs/matrix_engine.md).
    const bool fast = !__builtin_cpu_is("intel");
    sets.insert(fast ? sets.end() : sets.end() - 1, HostSimd::kAvx512Bf16);
    if (has_tiles() && tiles_permitted()) {
      sets.push_back(HostSimd::kAmx);
    }
  }
  return sets;
}
#else
std::vector<HostSimd> ask_processor() {
  return {HostSimd::kScalar, HostSimd::kNeon};  // all processors of aarch64 have it
}
#endif

}  // namespace

std::vector<HostSimd> host_simd() {
  static const std::vector<HostSimd> sets = ask_processor();
  return sets;
}

bool has_simd(HostSimd simd) {
  const std::vector<HostSimd> sets = host_simd();
  return std::ranges::find(sets, simd) != sets.end();
}

const char* simd_name(HostSimd simd) {
  switch (simd) {
    case HostSimd::kScalar:
      return "scalar";
    case HostSimd::kNeon:
      return "neon";
    case HostSimd::kAvx2:
      return "avx2";
    case HostSimd::kAvx512:
      return "avx512";
    case HostSimd::kAvx512Bf16:
      return "avx512_bf16";
    case HostSimd::kAmx:
      return "amx";
  }
  return "unknown";
}

}  // namespace tpu::base
