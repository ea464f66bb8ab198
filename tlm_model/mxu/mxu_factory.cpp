// Engines by name, see mxu_factory.hpp.
#include "mxu/mxu_factory.hpp"

#include <charconv>
#include <stdexcept>

#include "mxu/mxu_fast.hpp"
#include "mxu/mxu_rtl.hpp"
#include "mxu/mxu_scalar.hpp"

namespace tpu::model {
namespace {

constexpr std::string_view kSample = "lockstep:1/";

// N of "lockstep:1/N", or 0.
uint64_t sample_of(const std::string& kind) {
  uint64_t n = 0;
  const char* end = kind.data() + kind.size();
  const auto result = std::from_chars(kind.data() + kSample.size(), end, n);
  return result.ec == std::errc() && result.ptr == end ? n : 0;
}

std::unique_ptr<MxuEngine> make_fast(const MxuEngineOptions& options) {
  return std::make_unique<MxuFastEngine>(options.shape, mxu_simd_from_name(options.simd));
}

}  // namespace

std::optional<std::string> mxu_kind_error(const std::string& kind) {
  if (kind == "fast" || kind == "scalar" || kind == "rtl" || kind == "lockstep" ||
      (kind.starts_with(kSample) && sample_of(kind) > 0)) {
    return std::nullopt;
  }
  return "mxu: unknown engine '" + kind +
         "'; there are fast, scalar, rtl, lockstep and lockstep:1/N with N of at least 1";
}

std::unique_ptr<MxuEngine> make_mxu_engine(const MxuEngineOptions& options) {
  if (const auto error = mxu_kind_error(options.kind)) {
    throw std::runtime_error(*error);
  }
  if (options.kind == "scalar" || (options.kind == "fast" && options.simd == "scalar")) {
    return std::make_unique<MxuScalarEngine>(options.shape);
  }
  if (options.kind == "fast") {
    return make_fast(options);
  }
  if (options.kind == "rtl") {
    return std::make_unique<MxuRtlEngine>(make_rtl_array(options.shape, options.path),
                                          options.on_failure);
  }
  MxuLockstepOptions lockstep = options.lockstep;
  if (options.kind.starts_with(kSample)) {
    lockstep.one_in = sample_of(options.kind);
  }
  MxuEngineOptions fast = options;
  fast.kind = "fast";
  return std::make_unique<MxuLockstepEngine>(
      make_mxu_engine(fast), make_rtl_array(options.shape, options.path), std::move(lockstep));
}

}  // namespace tpu::model
