// The table of micro-kernels, and the choice among them.
#include "mxu/mxu_kernel_table.hpp"

#include <algorithm>
#include <cstring>

namespace tpu::model {
namespace {

using Kind = MxuKernelKind;

constexpr std::string_view kWhenShort =
    "a K block of segments of at most 12 terms, or of the one segment at the end";
constexpr std::string_view kWhenSegment = "a K block of the one segment at the end";
constexpr std::string_view kWhenZeros = "more than 64 rows; a sample of lhs has enough zeros";
constexpr std::string_view kWhenElse = "all others";

constexpr std::array kTable = {
    MxuKernelRow{"avx2", Kind::kShort, "avx2.short", "3 x 16", kWhenShort, 16},
    MxuKernelRow{"avx2", Kind::kSparse, "avx2.sparse", "1 x 64", kWhenZeros, 16},
    MxuKernelRow{"avx2", Kind::kDense, "avx2.dense", "3 x 16", kWhenElse, 16},
    MxuKernelRow{"avx512", Kind::kShort, "avx512.short", "3 x 64", kWhenShort, 32},
    MxuKernelRow{"avx512", Kind::kSparse, "avx512.sparse", "1 x 128", kWhenZeros, 32},
    MxuKernelRow{"avx512", Kind::kDense, "avx512.dense", "6 x 64", kWhenElse, 32},
    MxuKernelRow{"avx512_bf16", Kind::kShort, "avx512_bf16.short", "3 x 64", kWhenSegment, 64},
    MxuKernelRow{"avx512_bf16", Kind::kSparse, "avx512_bf16.sparse", "1 x 128", kWhenZeros, 64},
    MxuKernelRow{"avx512_bf16", Kind::kDense, "avx512_bf16.dense", "3 x 64", kWhenElse, 64},
    MxuKernelRow{"amx", Kind::kDense, "amx.dense", "32 x 32", kWhenElse, 512},
};

bool is_zero(const uint8_t* element, bool is_bf16) {
  uint32_t bits = 0;
  std::memcpy(&bits, element, is_bf16 ? 2 : 4);
  bits = is_bf16 ? bits << 16 : bits;
  return (bits & 0x7f800000U) == 0;  // subnormals count as zeros
}

// By a few runs of elements spread over rows and taps; at least `enough` if it is that much. Most
// of the time is waiting for memory, and the first runs tell of dense operands.
double sampled_density(const MxuJob& job, int64_t slot_terms, double enough) {
  constexpr int64_t kRuns = 64;
  constexpr int64_t kRun = 32;
  constexpr int64_t kChains = 2;
  const int64_t run = std::min(kRun, job.k());
  int64_t run_slots = 0;
  for (int64_t at = 0; at < run; ++at) {
    run_slots += at / kChains % slot_terms == 0 ? 1 : 0;
  }
  const auto slots = static_cast<double>(kRuns * run_slots);
  int64_t nonzero = 0;
  for (int64_t i = 0; i < kRuns && static_cast<double>(nonzero) < enough * slots; ++i) {
    const int64_t row = job.row_begin + i * job.rows() / kRuns;
    const int64_t k = i * 37 % (job.k() / run) * run;
    const uint8_t* const first = job.lhs + nest_offset(row, job.m_count, job.m_lhs_stride) +
                                 nest_offset(i % job.taps(), job.t_count, job.t_lhs_stride) +
                                 k * job.lhs_element();
    for (int64_t at = 0; at < run; ++at) {
      if (at / kChains % slot_terms != 0) {
        continue;  // the slot's later term
      }
      bool any = false;
      for (int64_t term = at; term < run && term < at + kChains * slot_terms; term += kChains) {
        any |= !is_zero(first + term * job.lhs_element(), job.lhs_is_bf16);
      }
      nonzero += any ? 1 : 0;
    }
  }
  return static_cast<double>(nonzero) / slots;
}

bool is_sparser(const MxuJob& job, int64_t slot_terms, double bound) {
  return sampled_density(job, slot_terms, bound) < bound;
}

// So many that a sample of lhs costs nothing beside them.
bool has_many_terms(const MxuJob& job) { return job.terms() >= int64_t{4} << 20; }

// Whether multiply_sparse is worth a call: it takes whole panels in their place, as many as make
// sparse_columns, and few terms are computed faster than looked at.
bool may_skip_zeros(const MxuJob& job, const MxuKernelSet& set) {
  return set.sparse_columns > 0 && job.n_count[1] >= set.nr && job.n() >= set.sparse_columns &&
         job.n_out_stride[1] == static_cast<int64_t>(sizeof(float)) &&
         job.taps() * job.k() > kMxuSegment;
}

// Whether `few`, which leaves out zeros of lhs, is faster than `set`, which does all terms at a
// higher pace.
bool worth_skipping_zeros(const MxuJob& job, const MxuKernelSet& few, const MxuKernelSet& set) {
  return set.skip_below_density > 0 && may_skip_zeros(job, few) && job.rows() > few.few_rows &&
         job.n_count[1] % few.sparse_columns == 0 && has_many_terms(job) &&
         is_sparser(job, few.slot_terms, set.skip_below_density);
}

}  // namespace

std::span<const MxuKernelRow> mxu_kernel_table() { return kTable; }

const MxuKernelRow* mxu_kernel_row(std::string_view set, MxuKernelKind kind) {
  const auto found = std::ranges::find_if(
      kTable, [&](const MxuKernelRow& row) { return row.set == set && row.kind == kind; });
  return found == kTable.end() ? nullptr : &*found;
}

double mxu_lhs_density(const MxuJob& job, int64_t slot_terms) {
  return sampled_density(job, slot_terms, 1.0);
}

const MxuKernelSet& choose_mxu_kernel_set(const MxuKernelSet& asked, const MxuJob& job) {
  const MxuKernelSet* const few = asked.few_terms;
  const bool use_few =
      few != nullptr && (job.k() < asked.few_terms_below || worth_skipping_zeros(job, *few, asked));
  return use_few ? *few : asked;
}

// Of few rows packing takes longer than the products, so that zeros are not worth a look. Where a
// sample has few, nobody looks for more: to compute over all of K, all of rhs is packed first,
// without products beside it that it could be fetched during.
MxuKernelChoice choose_mxu_kernel(const MxuKernelSet& set, const MxuJob& job, int64_t rows,
                                  int64_t segments) {
  const bool few_rows = rows <= set.few_rows && segments > 2 * set.few_rows_segments;
  const bool sparse = !few_rows && may_skip_zeros(job, set) &&
                      (!has_many_terms(job) || is_sparser(job, set.slot_terms, set.sparse_below));
  return {.few_rows = few_rows, .sparse = sparse};
}

namespace {
thread_local MxuKernelUse* current_kernel_use = nullptr;
}  // namespace

MxuKernelUse::MxuKernelUse() { current_kernel_use = this; }
MxuKernelUse::~MxuKernelUse() { current_kernel_use = nullptr; }
MxuKernelUse* MxuKernelUse::current() { return current_kernel_use; }

}  // namespace tpu::model
