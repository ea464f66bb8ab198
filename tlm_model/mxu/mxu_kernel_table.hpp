// Which micro-kernel of the fast engine computes a job. The table has a row for each kernel: its
// instruction set, the block of results that it keeps in registers, when it is chosen, and the rate
// that it can reach. The first row of an instruction set that takes a job runs
// (docs/matrix_kernels.md). All rows give the same bits.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "mxu/mxu_engine.hpp"
#include "mxu/mxu_fast_kernels.hpp"

namespace tpu::model {

// How a kernel goes through a block of results.
enum class MxuKernelKind : uint8_t {
  kShort,   // of few terms: all chains and running values in registers
  kSparse,  // row by row over the terms of lhs that are not zero
  kDense,
};
inline constexpr size_t kMxuKernelKinds = 3;

struct MxuKernelRow {
  std::string_view set;  // as base::simd_name()
  MxuKernelKind kind;
  std::string_view name;     // "avx512.dense"
  std::string_view results;  // block of results in registers, rows x columns
  std::string_view when;     // it is chosen
  int64_t rate;              // multiply-adds a cycle at most, zeros not counted
};

// Rows by instruction set; within a set in the order in which they are asked.
std::span<const MxuKernelRow> mxu_kernel_table();
// Null: the set has no such kernel.
const MxuKernelRow* mxu_kernel_row(std::string_view set, MxuKernelKind kind);

// The set whose kernels compute a job where `asked` is in use: another one for few terms a tap, and
// for lhs of hardly anything but zeros.
const MxuKernelSet& choose_mxu_kernel_set(const MxuKernelSet& asked, const MxuJob& job);

// What is chosen among its kernels. Blocks of few terms take kShort in any case.
struct MxuKernelChoice {
  bool few_rows;  // short K blocks, whose zeros are not looked for
  bool sparse;    // blocks are offered to kSparse first; kDense has what that leaves
  bool operator==(const MxuKernelChoice&) const = default;
};
// `rows`: of all jobs that are computed together, of which `job` is the first; `segments`: of K.
MxuKernelChoice choose_mxu_kernel(const MxuKernelSet& set, const MxuJob& job, int64_t rows,
                                  int64_t segments);

// Part of lhs that is not zero, by a sample of some thousand elements; of pairs of neighbours of a
// chain if a slot holds two terms.
double mxu_lhs_density(const MxuJob& job, int64_t slot_terms);

// Multiply-adds by kernel, zeros included, of the commands that this thread computes while the
// object lives, one object at a time. For benchmarks and tests: without one, nothing is counted.
struct MxuKernelUse {
  MxuKernelUse();
  ~MxuKernelUse();
  MxuKernelUse(const MxuKernelUse&) = delete;
  MxuKernelUse& operator=(const MxuKernelUse&) = delete;
  // The one of this thread, or null.
  static MxuKernelUse* current();

  struct Entry {
    const MxuKernelSet* set = nullptr;
    std::array<int64_t, kMxuKernelKinds> terms{};
  };
  std::array<Entry, 5> entries{};

  void add(const MxuKernelSet& set, MxuKernelKind kind, int64_t terms) {
    for (Entry& entry : entries) {
      if (entry.set == nullptr || entry.set == &set) {
        entry.set = &set;
        entry.terms[static_cast<size_t>(kind)] += terms;
        return;
      }
    }
  }
};

}  // namespace tpu::model
