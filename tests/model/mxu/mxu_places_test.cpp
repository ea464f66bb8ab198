// Where the fast engine reads and writes: outputs and columns that lie apart, K in an order of its
// own, operands at the very end and beginning of memory. On every instruction set of the host and
// on the emulated ones.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "amx_instructions.hpp"
#include "mxu_same_bits.hpp"

namespace tpu::model {
namespace {

using test::expect_same;
using test::OwnedJob;
using test::Values;

// Whole blocks of every kernel set, so that none of them takes its path for edges anyway.
constexpr int64_t kRows = 96;
constexpr int64_t kColumns = 128;

// A job whose `out` has room for more than its rows and columns.
OwnedJob roomy_job(bool accumulate, uint64_t seed) {
  OwnedJob owned = test::packed_job(
      {.rows = kRows, .k = 70, .n = kColumns, .accumulate = accumulate}, seed, Values::kSpecial);
  owned.out.resize(4 * kRows * kColumns, 0x3f800000U);
  owned.job.out = reinterpret_cast<uint8_t*>(owned.out.data());
  return owned;
}

TEST(MxuPlaces, RowsOfOutputLieUnevenly) {
  for (const bool accumulate : {false, true}) {
    OwnedJob owned = roomy_job(accumulate, 1);
    MxuJob& job = owned.job;
    job.m_count = {1, 1, 8, 12};
    job.m_lhs_stride = {0, 0, 12 * 70 * 4, 70 * 4};
    job.m_out_stride = {0, 0, (12 * kColumns + 48) * 4, kColumns * 4};
    expect_same(owned, "gaps");
    job.m_out_stride = {0, 0, kColumns * 4, 8 * kColumns * 4};
    expect_same(owned, "interleaved");
    job.m_count = {1, 1, 1, kRows};
    job.m_out_stride = {0, 0, 0, -kColumns * 4};
    job.out += (kRows - 1) * kColumns * 4;
    expect_same(owned, "backwards");
  }
}

TEST(MxuPlaces, ColumnsOfOutputLieApart) {
  for (const bool accumulate : {false, true}) {
    OwnedJob owned = roomy_job(accumulate, 2);
    MxuJob& job = owned.job;
    job.n_out_stride[1] = 2 * 4;
    job.m_out_stride[3] = 2 * kColumns * 4;
    expect_same(owned, "every second");
    job.n_out_stride[1] = kRows * 4;
    job.m_out_stride[3] = 4;
    expect_same(owned, "transposed");
    job.n_count = {16, 8};
    job.n_rhs_stride = {8 * 4, 4};
    job.n_out_stride = {12 * 4, 4};
    job.m_out_stride[3] = 2 * kColumns * 4;
    expect_same(owned, "short runs");
    job.n_rhs_stride = {4, 16 * 4};
    expect_same(owned, "short runs of columns apart");
  }
}

// The first and the last k lie as in one run, those between do not.
TEST(MxuPlaces, KInAnOrderOfItsOwn) {
  for (const bool bf16 : {false, true}) {
    for (const int64_t outer : {2, 4, 20}) {
      const int64_t k = 4 * outer;
      OwnedJob owned = test::packed_job({.rows = kRows, .k = k, .n = kColumns, .rhs_bf16 = bf16}, 3,
                                        Values::kNormal);
      MxuJob& job = owned.job;
      const int64_t e = job.rhs_element();
      job.k_count = {outer, 2, 2};
      job.k_rhs_stride = {2 * e, outer * 2 * e, e};
      job.n_rhs_stride[1] = k * e;
      job.rhs_transposed = true;
      expect_same(owned, bf16 ? "bf16" : "f32");
    }
  }
}

// As the weight gradient of a convolution over one channel has it: K runs over the pixels of images
// without their margins, columns over the taps of a window.
OwnedJob window_sums_job(int64_t side, bool bf16, bool accumulate) {
  constexpr int64_t kWindow = 3;
  constexpr int64_t kImages = 2;
  const int64_t inner = side - kWindow + 1;
  OwnedJob owned = test::packed_job({.rows = 21,
                                     .k = kImages * inner * inner,
                                     .n = kWindow * kWindow,
                                     .lhs_bf16 = bf16,
                                     .rhs_bf16 = bf16,
                                     .accumulate = accumulate},
                                    static_cast<uint64_t>(side), Values::kSpecial);
  const OwnedJob images = test::packed_job(
      {.rows = 1, .k = kImages * side * side, .n = 1, .rhs_bf16 = bf16}, 9, Values::kSpecial);
  owned.rhs = images.rhs;
  MxuJob& job = owned.job;
  const int64_t e = job.rhs_element();
  job.rhs = owned.rhs.data();
  job.k_count = {kImages, inner, inner};
  job.k_rhs_stride = {side * side * e, side * e, e};
  job.n_count = {kWindow, kWindow};
  job.n_rhs_stride = {side * e, e};
  job.n_out_stride = {kWindow * 4, 4};
  return owned;
}

TEST(MxuPlaces, KInRunsOfImageRows) {
  for (const int64_t side : {5, 9, 13, 20, 34, 35}) {
    for (const bool bf16 : {false, true}) {
      for (const bool accumulate : {false, true}) {
        OwnedJob owned = window_sums_job(side, bf16, accumulate);
        expect_same(owned, "side " + std::to_string(side));
        owned.out.resize(owned.out.size() * 2);
        owned.job.out = reinterpret_cast<uint8_t*>(owned.out.data());
        owned.job.n_out_stride = {5 * 4, 4};
        owned.job.m_out_stride[3] = 18 * 4;
        expect_same(owned, "results apart, side " + std::to_string(side));
      }
    }
  }
}

// Results that are stored around the caches, where they are whole lines.
TEST(MxuPlaces, ManyResultsOfFewTerms) {
  constexpr int64_t kManyRows = 2100;
  for (const int64_t k : {25, 32, 40}) {
    OwnedJob owned =
        test::packed_job({.rows = kManyRows, .k = k, .n = kColumns}, 8, Values::kSpecial);
    owned.out.resize(owned.out.size() + 16);
    const auto first = reinterpret_cast<uintptr_t>(owned.out.data());
    for (const uintptr_t at : {(first + 63) / 64 * 64, (first + 63) / 64 * 64 - 4}) {
      owned.job.out = reinterpret_cast<uint8_t*>(owned.out.data()) + (at - first);
      if (at >= first) {
        expect_same(owned, "k = " + std::to_string(k) + (at % 64 == 0 ? ", lines" : ""));
      }
    }
  }
}

// Memory between pages that nobody may touch.
class Fenced {
 public:
  // Holds a copy of `bytes`, at the end or at the beginning.
  Fenced(const void* bytes, size_t size, bool at_end) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inner = (size + page - 1) / page * page;
    size_ = inner + 2 * page;
    base_ =
        static_cast<uint8_t*>(mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(mprotect(base_ + page, inner, PROT_READ | PROT_WRITE), 0);
    data_ = base_ + page + (at_end ? inner - size : 0);
    std::memcpy(data_, bytes, size);
  }
  ~Fenced() { munmap(base_, size_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  uint8_t* data() const { return data_; }

 private:
  uint8_t* base_;
  uint8_t* data_;
  size_t size_;
};

void run_fenced(const OwnedJob& owned, const MxuKernelSet* kernels, bool at_end,
                std::vector<uint32_t>& result) {
  const Fenced lhs(owned.lhs.data(), owned.lhs.size(), at_end);
  const Fenced rhs(owned.rhs.data(), owned.rhs.size(), at_end);
  const Fenced out(owned.out.data(), owned.out.size() * 4, at_end);
  MxuJob job = owned.job;
  job.lhs = lhs.data() + (owned.job.lhs - owned.lhs.data());
  job.rhs = rhs.data() + (owned.job.rhs - owned.rhs.data());
  job.out = out.data() + (owned.job.out - reinterpret_cast<const uint8_t*>(owned.out.data()));
  MxuFastEngine(spec::MxuShape{}, kernels).run(job);
  result.resize(owned.out.size());
  std::memcpy(result.data(), out.data(), owned.out.size() * 4);
}

TEST(MxuPlaces, TouchesNothingAroundTheOperands) {
  std::vector<OwnedJob> jobs;
  for (uint64_t seed = 0; seed < 25; ++seed) {
    jobs.push_back(test::strided_job(1000 + seed, Values::kNormal));
  }
  for (const int64_t n : {1, 7, 15, 33, 50, 65, 127}) {
    for (const bool bf16 : {false, true}) {
      const test::PackedShape shape{
          .rows = 33, .k = n + 2, .n = n, .lhs_bf16 = bf16, .rhs_bf16 = bf16, .accumulate = bf16};
      jobs.push_back(test::packed_job(shape, 4, Values::kNormal));
      OwnedJob& transposed = jobs.emplace_back(jobs.back());
      MxuJob& job = transposed.job;  // of a copy: its operands moved
      job.lhs = transposed.lhs.data();
      job.rhs = transposed.rhs.data();
      job.out = reinterpret_cast<uint8_t*>(transposed.out.data());
      test::transpose_rhs(transposed);
    }
  }
  for (const bool bf16 : {false, true}) {
    const test::PackedShape whole_segments{.rows = 35, .k = 64, .n = 40, .lhs_bf16 = bf16};
    jobs.push_back(test::packed_job(whole_segments, 6, Values::kNormal));
    jobs.push_back(window_sums_job(13, bf16, false));
    const test::WindowShape window{.side = 14, .channels = 32, .out = 20, .bf16 = bf16};
    jobs.push_back(test::window_job(window, 7, Values::kNormal));
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    std::vector<uint32_t> wanted = jobs[i].out;
    MxuScalarEngine(spec::MxuShape{}).run(jobs[i].on(wanted));
    for (const test::KernelSet& set : test::kernel_sets()) {
      for (const bool at_end : {false, true}) {
        std::vector<uint32_t> got;
        run_fenced(jobs[i], set.kernels, at_end, got);
        ASSERT_EQ(got, wanted) << set.name << ", job " << i << (at_end ? ", at the end" : "");
      }
    }
  }
}

// Tiles belong to a thread: each has to configure them, and to release them, else the processor
// saves 8 KiB at every switch.
TEST(MxuPlaces, EveryThreadConfiguresAndReleasesItsTiles) {
  if (test::kernel_sets().size() == 1) {
    GTEST_SKIP() << "the emulation needs AVX2";
  }
  const OwnedJob owned = test::packed_job({.rows = 40, .k = 100, .n = 40}, 5, Values::kNormal);
  std::vector<uint32_t> wanted = owned.out;
  MxuScalarEngine(spec::MxuShape{}).run(owned.on(wanted));
  MxuFastEngine engine(spec::MxuShape{}, emulated_mxu_kernels_amx());
  for (int i = 0; i < 2; ++i) {
    std::thread([&] {
      std::vector<uint32_t> got = owned.out;
      engine.run(owned.on(got));
      EXPECT_EQ(got, wanted);
      EXPECT_FALSE(emulation::tiles_in_use());
    }).join();
  }
}

}  // namespace
}  // namespace tpu::model
