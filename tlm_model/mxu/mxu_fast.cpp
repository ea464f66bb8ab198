// Blocking of the fast engine: K blocks outermost (ascending, so that every output sums in the
// law's order), then column blocks, then row blocks; packing once per block, kernels inside. See
// mxu_fast.hpp.
#include "mxu/mxu_fast.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "arith/flush_mode.hpp"
#include "mxu/mxu_scalar.hpp"
#include "mxu/mxu_tiles.hpp"

namespace tpu::model {
namespace {

// Scratch of one thread; grows, never shrinks, so that no job allocates in the steady state.
class Scratch {
 public:
  ~Scratch() { std::free(data_); }
  void* get(size_t bytes) {
    if (bytes > size_) {
      std::free(data_);
      size_ = (bytes + 4095) / 4096 * 4096;
      data_ = std::aligned_alloc(4096, size_);
      if (data_ == nullptr) {
        size_ = 0;
        throw std::bad_alloc();
      }
    }
    return data_;
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

struct Plan {
  std::vector<MxuSegment>
      segments;  // in the order of the sum, a padding segment behind every short tile
  std::vector<MxuPanel> panels;
};

void plan_segments(const MxuJob& job, const spec::MxuShape& shape, Plan& plan) {
  const auto tile_rows = static_cast<int64_t>(shape.rows);
  for (int64_t t0 = 0; t0 < job.t_count[0]; ++t0) {
    for (int64_t t1 = 0; t1 < job.t_count[1]; ++t1) {
      for (int64_t t2 = 0; t2 < job.t_count[2]; ++t2) {
        const int64_t lhs =
            t0 * job.t_lhs_stride[0] + t1 * job.t_lhs_stride[1] + t2 * job.t_lhs_stride[2];
        const int64_t rhs =
            t0 * job.t_rhs_stride[0] + t1 * job.t_rhs_stride[1] + t2 * job.t_rhs_stride[2];
        for (int64_t tile = 0; tile < job.k(); tile += tile_rows) {
          const int64_t end = std::min(job.k(), tile + tile_rows);
          for (int64_t k = tile; k < end; k += kMxuSegment) {
            plan.segments.push_back({.lhs_offset = lhs + k * job.lhs_element(),
                                     .rhs_tap = rhs,
                                     .k_first = k,
                                     .k = std::min(kMxuSegment, end - k)});
          }
          if (end - tile <= tile_rows - kMxuSegment) {
            plan.segments.push_back({.lhs_offset = 0, .rhs_tap = 0, .k_first = 0, .k = 0});
          }
        }
      }
    }
  }
}

void plan_panels(const MxuJob& job, int64_t nr, Plan& plan) {
  for (int64_t outer = 0; outer < job.n_count[0]; ++outer) {
    for (int64_t n = 0; n < job.n_count[1]; n += nr) {
      plan.panels.push_back({.rhs_offset = outer * job.n_rhs_stride[0] + n * job.n_rhs_stride[1],
                             .out_offset = outer * job.n_out_stride[0] + n * job.n_out_stride[1],
                             .count = std::min(nr, job.n_count[1] - n)});
    }
  }
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool has_amx() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  __asm__("cpuid" : "=a"(eax), "=b"(ebx), "=c"(ecx), "=d"(edx) : "a"(7), "c"(0));
  constexpr unsigned kAmxBf16 = 1U << 22;
  constexpr unsigned kAmxTile = 1U << 24;
  return (edx & kAmxBf16) != 0 && (edx & kAmxTile) != 0 && has_avx512() &&
         mxu_kernels_amx() != nullptr;
}

}  // namespace

std::vector<MxuSimd> mxu_host_simd() {
  std::vector<MxuSimd> list = {MxuSimd::kScalar};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    list.push_back(MxuSimd::kAvx2);
    if (has_avx512()) {
      list.push_back(MxuSimd::kAvx512);
      if (has_amx()) {
        list.push_back(MxuSimd::kAmx);
      }
    }
  }
  return list;
}

const char* mxu_simd_name(MxuSimd simd) {
  switch (simd) {
    case MxuSimd::kScalar:
      return "scalar";
    case MxuSimd::kAvx2:
      return "avx2";
    case MxuSimd::kAvx512:
      return "avx512";
    case MxuSimd::kAmx:
      return "amx";
  }
  return "unknown";
}

MxuSimd mxu_simd_from_name(const std::string& name) {
  const std::vector<MxuSimd> host = mxu_host_simd();
  if (name.empty() || name == "auto") {
    return host.back();
  }
  std::string names;
  for (const MxuSimd simd : host) {
    if (name == mxu_simd_name(simd)) {
      return simd;
    }
    names += std::string(names.empty() ? "" : ", ") + mxu_simd_name(simd);
  }
  throw std::runtime_error("--simd " + name + ": this host has " + names);
}

MxuFastEngine::MxuFastEngine(const spec::MxuShape& shape, MxuSimd simd)
    : shape_(shape), simd_(simd) {
  const bool two_chains = shape.chains == 2 && shape.segment_rows == kMxuSegment;
  if (two_chains && simd == MxuSimd::kAvx2) {
    kernels_ = mxu_kernels_avx2();
  } else if (two_chains && simd == MxuSimd::kAvx512) {
    kernels_ = mxu_kernels_avx512();
  } else if (two_chains && simd == MxuSimd::kAmx) {
    kernels_ = mxu_kernels_amx();
  }
  if (kernels_ == nullptr) {
    reference_ = std::make_unique<MxuScalarEngine>(shape);
  }
}

void MxuFastEngine::run(const MxuJob& job) {
  if (kernels_ == nullptr) {
    reference_->run(job);
    return;
  }
  const MxuKernelSet& set = *kernels_;
  const spec::ScopedFlushMode flush;
  const MxuOffsets offsets = mxu_offsets(job);
  const auto rows = static_cast<int64_t>(offsets.row_lhs.size());
  Plan plan;
  plan_segments(job, shape_, plan);
  plan_panels(job, set.nr, plan);
  if (rows == 0 || plan.panels.empty() || plan.segments.empty()) {
    return;
  }
  static thread_local Scratch lhs_scratch;
  static thread_local Scratch rhs_scratch;
  const auto segment_count = static_cast<int64_t>(plan.segments.size());
  const auto panel_count = static_cast<int64_t>(plan.panels.size());
  MxuBlockArgs args{};
  args.lhs = job.lhs;
  args.rhs = job.rhs;
  args.out = job.out;
  args.lhs_is_bf16 = job.lhs_is_bf16;
  args.rhs_is_bf16 = job.rhs_is_bf16;
  args.k_rhs = offsets.k_rhs.data();
  args.n_rhs_stride = job.n_rhs_stride[1];
  args.n_out_stride = job.n_out_stride[1];
  for (int64_t s = 0; s < segment_count; s += set.block_segments) {
    args.segments = plan.segments.data() + s;
    args.segment_count = std::min(set.block_segments, segment_count - s);
    args.zero_start = s == 0 && !job.accumulate;
    args.last = s + args.segment_count == segment_count;
    for (int64_t p = 0; p < panel_count; p += set.block_panels) {
      args.panels = plan.panels.data() + p;
      args.panel_count = std::min(set.block_panels, panel_count - p);
      args.packed_rhs = rhs_scratch.get(set.rhs_bytes(args.panel_count, args.segment_count));
      set.pack_rhs(args);
      for (int64_t row = 0; row < rows; row += set.block_rows) {
        args.row_lhs = offsets.row_lhs.data() + row;
        args.row_out = offsets.row_out.data() + row;
        args.rows = std::min(set.block_rows, rows - row);
        args.packed_lhs = lhs_scratch.get(set.lhs_bytes(args.rows, args.segment_count));
        set.pack_lhs(args);
        set.multiply(args);
      }
    }
  }
}

}  // namespace tpu::model
