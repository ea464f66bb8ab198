// Reference engine, see mxu_scalar.hpp. Columns are the inner loop, so that the compiler may
// vectorise it; lanes are independent, hence the width changes no bit.
#include "mxu/mxu_scalar.hpp"

#include <cstring>
#include <stdexcept>
#include <vector>

#include "arith/f32.hpp"
#include "arith/flush_mode.hpp"
#include "arith/host_f32.hpp"
#include "arith/mxu_column.hpp"
#include "mxu/mxu_tiles.hpp"

namespace tpu::model {
namespace {

// Scratch of one call. Weights and activations are widened to f32; rows up to the end of the last
// segment that holds data are present (+0 beyond k).
struct Scratch {
  std::vector<uint16_t> weight_bits, x_bits;
  std::vector<uint32_t> running_bits;
  std::vector<float> weights, x, chain, sum, running, before;
};

struct TileArgs {
  size_t cols;
  size_t rows;  // segments with data only
  size_t segment_rows;
  size_t chains;
  bool pad;  // segments without data follow
};

#if defined(__x86_64__)
#define TPU_FMA_TARGET target("avx2,fma")
#else
#define TPU_FMA_TARGET noinline  // underflows of it are asked for (arith/host_f32.hpp)
#endif

// kExact: products that the host may have flushed too early are computed once more.
template <bool kExact>
__attribute__((TPU_FMA_TARGET)) void chain_pass(const float* __restrict weights,
                                                const float* __restrict x, size_t begin, size_t end,
                                                size_t step, size_t cols, float* __restrict chain) {
  for (size_t n = 0; n < cols; ++n) {
    chain[n] = 0.0f;
  }
  for (size_t k = begin; k < end; k += step) {
    const float* w = weights + k * cols;
    const float xk = x[k];
    for (size_t n = 0; n < cols; ++n) {
      chain[n] = kExact ? spec::host_fma(w[n], xk, chain[n]) : __builtin_fmaf(w[n], xk, chain[n]);
    }
  }
}

template <bool kExact>
void sum_segments(const TileArgs& a, Scratch& s) {
  for (size_t segment = 0; segment < a.rows; segment += a.segment_rows) {
    const size_t end = segment + a.segment_rows;
    chain_pass<kExact>(s.weights.data(), s.x.data(), segment, end, a.chains, a.cols, s.sum.data());
    for (size_t c = 1; c < a.chains; ++c) {
      chain_pass<kExact>(s.weights.data(), s.x.data(), segment + c, end, a.chains, a.cols,
                         s.chain.data());
      for (size_t n = 0; n < a.cols; ++n) {
        s.sum[n] += s.chain[n];
      }
    }
    for (size_t n = 0; n < a.cols; ++n) {
      s.running[n] += s.sum[n];
    }
  }
}

void host_row(const TileArgs& a, Scratch& s) {
#if defined(__x86_64__)
  sum_segments<false>(a, s);
#else
  s.before = s.running;
  spec::clear_host_underflow();
  sum_segments<false>(a, s);
  if (spec::host_underflowed()) {
    s.running = s.before;
    sum_segments<true>(a, s);
  }
#endif
  for (size_t n = 0; n < a.cols; ++n) {
    const float value = a.pad ? s.running[n] + 0.0f : s.running[n];
    const uint32_t bits = spec::f32_bits(value);
    s.running[n] = spec::f32_is_nan(bits) ? spec::f32_from_bits(spec::kF32CanonicalNan) : value;
  }
}

bool host_has_fma() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return true;
#endif
}

void reference_row(const spec::MxuShape& shape, const MxuTile& tile, Scratch& s) {
  std::vector<uint16_t> column(shape.rows);
  for (size_t n = 0; n < static_cast<size_t>(tile.cols); ++n) {
    for (size_t k = 0; k < shape.rows; ++k) {
      column[k] = s.weight_bits[k * shape.cols + n];
    }
    s.running[n] = spec::f32_from_bits(spec::mxu_column_bits(shape, column.data(), s.x_bits.data(),
                                                             static_cast<size_t>(tile.k_rows),
                                                             spec::f32_bits(s.running[n])));
  }
}

}  // namespace

MxuScalarEngine::MxuScalarEngine(const spec::MxuShape& shape, bool use_host_fma)
    : shape_(shape), use_host_fma_(use_host_fma && host_has_fma()) {
  if (const auto error = spec::mxu_shape_error(shape)) {
    throw std::runtime_error(*error);
  }
}

void MxuScalarEngine::run(const MxuJob& job) {
  const spec::ScopedFlushMode flush;
  const MxuOffsets offsets = mxu_offsets(job);
  const size_t cols = shape_.cols;
  Scratch s;
  s.weight_bits.resize(size_t{shape_.rows} * cols);
  s.weights.resize(s.weight_bits.size());
  s.x_bits.resize(shape_.rows);
  s.x.resize(shape_.rows);
  s.chain.resize(cols);
  s.sum.resize(cols);
  s.running.resize(cols);
  s.running_bits.resize(cols);
  for (const MxuTile& tile : mxu_tiles(job, shape_)) {
    mxu_pack_weights(job, offsets, tile, shape_, s.weight_bits.data());
    for (size_t i = 0; i < s.weights.size(); ++i) {
      s.weights[i] = spec::f32_from_bits(spec::bf16_to_f32_bits(s.weight_bits[i]));
    }
    const size_t segments =
        (static_cast<size_t>(tile.k_rows) + shape_.segment_rows() - 1) / shape_.segment_rows();
    const TileArgs args{.cols = cols,
                        .rows = segments * shape_.segment_rows(),
                        .segment_rows = shape_.segment_rows(),
                        .chains = shape_.chains(),
                        .pad = segments < shape_.segments()};
    for (size_t row = 0; row < offsets.row_lhs.size(); ++row) {
      mxu_pack_row(job, offsets, tile, shape_, row, s.x_bits.data());
      if (tile.first && !job.accumulate) {
        s.running.assign(cols, 0.0f);
      } else {
        mxu_load_out(job, offsets, tile, shape_, row, s.running_bits.data());
        std::memcpy(s.running.data(), s.running_bits.data(), cols * sizeof(float));
      }
      if (use_host_fma_) {
        for (size_t k = 0; k < args.rows; ++k) {
          s.x[k] = spec::f32_from_bits(spec::bf16_to_f32_bits(s.x_bits[k]));
        }
        host_row(args, s);
      } else {
        reference_row(shape_, tile, s);
      }
      std::memcpy(s.running_bits.data(), s.running.data(), cols * sizeof(float));
      mxu_store_out(job, offsets, tile, row, s.running_bits.data());
    }
  }
}

}  // namespace tpu::model
