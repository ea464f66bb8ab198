// Host detection for the vector unit.
#include "vpu/vpu_simd.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "processor/host_simd.hpp"
#include "vpu/vpu_ops.hpp"
#include "vpu/vpu_program.hpp"

namespace tpu::model {
namespace {

bool host_has(VpuSimd simd) {
  switch (simd) {
    case VpuSimd::kScalar:
      return true;
    case VpuSimd::kNeon:
      return base::has_simd(base::HostSimd::kNeon);
    case VpuSimd::kAvx2:
      return base::has_simd(base::HostSimd::kAvx2);
    case VpuSimd::kAvx512:
      return base::has_simd(base::HostSimd::kAvx512);
  }
  return false;
}

constexpr std::array kAll = {VpuSimd::kScalar, VpuSimd::kNeon, VpuSimd::kAvx2, VpuSimd::kAvx512};

}  // namespace

std::vector<VpuSimd> vpu_host_simds() {
  std::vector<VpuSimd> result;
  for (const VpuSimd simd : kAll) {
    if (host_has(simd)) {
      result.push_back(simd);
    }
  }
  return result;
}

VpuSimd vpu_best_simd() {
  static const VpuSimd best = vpu_host_simds().back();
  return best;
}

std::string_view vpu_simd_name(VpuSimd simd) {
  switch (simd) {
    case VpuSimd::kScalar:
      return "scalar";
    case VpuSimd::kNeon:
      return "neon";
    case VpuSimd::kAvx2:
      return "avx2";
    case VpuSimd::kAvx512:
      return "avx512";
  }
  return "?";
}

VpuSimd vpu_simd_from_name(std::string_view name) {
  if (name.empty() || name == "auto") {
    return vpu_best_simd();
  }
  const bool matrices = name == "amx" || name == "avx512_bf16";
  const std::string_view wanted = matrices ? std::string_view("avx512") : name;
  for (const VpuSimd simd : kAll) {
    if (vpu_simd_name(simd) != wanted) {
      continue;
    }
    if (!host_has(simd)) {
      throw VpuError(fmt::format(
          "SimOptions::simd {}: this host does not have these instructions: expected at most {}",
          name, vpu_simd_name(vpu_best_simd())));
    }
    return simd;
  }
  throw VpuError(fmt::format(
      "SimOptions::simd {}: expected scalar, neon, avx2, avx512, avx512_bf16, amx or auto", name));
}

VpuOpTable vpu_ops(VpuSimd simd) {
  VpuOpTable table = vpu_ops_scalar();
  switch (simd) {
#if defined(__x86_64__)
    case VpuSimd::kAvx2:
      table = vpu_ops_avx2();
      table.fused = fused_isa(FusedIsa::kAvx2);
      break;
    case VpuSimd::kAvx512:
      table = vpu_ops_avx512();
      table.fused = fused_isa(FusedIsa::kAvx512);
      break;
    case VpuSimd::kScalar:
    case VpuSimd::kNeon:
      break;
#else
    case VpuSimd::kNeon:
      table = vpu_ops_neon();
      break;
    case VpuSimd::kScalar:
    case VpuSimd::kAvx2:
    case VpuSimd::kAvx512:
      break;
#endif
  }
  return table;
}

}  // namespace tpu::model
