// The table of micro-kernels: which one is chosen, by rules that are written down here once more,
// and which one runs.
#include "mxu/mxu_kernel_table.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "mxu/mxu_fast.hpp"
#include "mxu_job_source.hpp"
#include "mxu_kernel_sets.hpp"

namespace tpu::model {
namespace {

using test::OwnedJob;
using test::Values;

// A set's name as the table has it.
std::string table_name(const test::KernelSet& set) {
  const std::string name = set.name;
  return name.starts_with("emulated ") ? name.substr(9) : name;
}

// Random sizes around all the borders of the rules; only `part` of lhs is not zero.
OwnedJob random_job(std::mt19937_64& rng, double part) {
  const auto one_of = [&](std::initializer_list<int64_t> values) {
    return *(values.begin() + static_cast<ptrdiff_t>(rng() % values.size()));
  };
  OwnedJob owned = test::packed_job(
      {.rows = one_of({1, 7, 63, 64, 65, 96, 200}),
       .k = one_of({1, 3, 12, 13, 15, 16, 19, 20, 31, 32, 33, 96, 97, 130, 520, 1100}),
       .n = one_of({5, 16, 63, 64, 100, 128, 192, 256}),
       .lhs_bf16 = rng() % 2 == 0,
       .rhs_bf16 = rng() % 2 == 0,
       .accumulate = rng() % 2 == 0},
      rng(), Values::kNormal);
  std::bernoulli_distribution keep(part);
  const auto element = static_cast<size_t>(owned.job.lhs_element());
  for (size_t at = 0; at < owned.lhs.size(); at += element) {
    if (!keep(rng)) {
      std::fill_n(owned.lhs.begin() + static_cast<ptrdiff_t>(at), element, uint8_t{0});
    }
  }
  return owned;
}

// Of one tile of K: how many segments it has.
int64_t segments_of(const MxuJob& job) { return job.taps() * ((job.k() + 31) / 32); }

bool sparse_is_worth_a_look(const MxuKernelSet& set, const MxuJob& job) {
  return set.sparse_columns != 0 && job.n_count[1] >= set.nr && job.n() >= set.sparse_columns &&
         job.n_out_stride[1] == 4 && job.taps() * job.k() > 32;
}

bool many_terms(const MxuJob& job) {
  return job.rows() * job.taps() * job.k() * job.n() >= 4 * 1024 * 1024;
}

const MxuKernelSet* expected_set(const MxuKernelSet& asked, const MxuJob& job) {
  const MxuKernelSet* const few = asked.few_terms;
  if (few == nullptr) {
    return &asked;
  }
  if (job.k() < (asked.bf16_in_place ? 20 : 16)) {  // AMX: 20
    return few;
  }
  const bool nearly_zero = asked.skip_below_density > 0 && sparse_is_worth_a_look(*few, job) &&
                           job.rows() > few->few_rows &&
                           job.n_count[1] % few->sparse_columns == 0 && many_terms(job) &&
                           mxu_lhs_density(job, few->slot_terms) < asked.skip_below_density;
  return nearly_zero ? few : &asked;
}

MxuKernelChoice expected_choice(const MxuKernelSet& set, const MxuJob& job) {
  MxuKernelChoice choice{};
  choice.few_rows = job.rows() <= set.few_rows && segments_of(job) > 2 * set.few_rows_segments;
  choice.sparse = !choice.few_rows && sparse_is_worth_a_look(set, job) &&
                  (!many_terms(job) || mxu_lhs_density(job, set.slot_terms) < set.sparse_below);
  return choice;
}

int64_t total(const MxuKernelUse::Entry& entry) {
  return std::accumulate(entry.terms.begin(), entry.terms.end(), int64_t{0});
}

TEST(MxuKernelTable, ChoosesByTheRulesOverRandomShapes) {
  std::mt19937_64 rng(1);
  std::set<std::string> seen;
  for (int i = 0; i < 300; ++i) {
    const double part = std::array{1.0, 0.8, 0.7, 0.3, 0.01}[rng() % 5];
    OwnedJob owned = random_job(rng, part);
    for (const test::KernelSet& set : test::kernel_sets()) {
      if (set.kernels == nullptr) {
        continue;  // the reference engine
      }
      SCOPED_TRACE(testing::Message() << "job " << i << ", " << set.name);
      const MxuKernelSet& chosen = choose_mxu_kernel_set(*set.kernels, owned.job);
      ASSERT_EQ(&chosen, expected_set(*set.kernels, owned.job));
      const MxuKernelChoice choice =
          choose_mxu_kernel(chosen, owned.job, owned.job.rows(), segments_of(owned.job));
      ASSERT_EQ(choice, expected_choice(chosen, owned.job));
      seen.insert(table_name(set) + (&chosen == set.kernels ? "" : " others") +
                  (choice.sparse     ? " sparse"
                   : choice.few_rows ? " few rows"
                                     : " dense"));
    }
  }
  for (const char* const each : {"avx2 sparse", "avx2 few rows", "avx2 dense", "amx others sparse",
                                 "amx few rows", "amx dense", "avx512_bf16 sparse"}) {
    EXPECT_TRUE(seen.contains(each)) << each << " was never chosen, on a host with AVX2";
  }
}

TEST(MxuKernelTable, DensityIsTheShareOfElementsThatAreNotZero) {
  OwnedJob owned = test::packed_job(
      {.rows = 64, .k = 32, .n = 64, .lhs_bf16 = false, .rhs_bf16 = false, .accumulate = false}, 3,
      Values::kNormal);
  for (const int64_t each : {1, 2, 4, 32}) {
    for (size_t i = 0; i < owned.lhs.size() / sizeof(float); ++i) {
      const float value = static_cast<int64_t>(i) % each == 0 ? 1 : 0;
      std::memcpy(owned.lhs.data() + i * sizeof value, &value, sizeof value);
    }
    EXPECT_DOUBLE_EQ(mxu_lhs_density(owned.job, 1), 1.0 / static_cast<double>(each));
  }
}

// What is chosen is what computes: all terms are accounted for, by kernels that the table has.
TEST(MxuKernelTable, TellsWhichKernelsRan) {
  std::mt19937_64 rng(2);
  std::set<std::string_view> ran;
  for (int i = 0; i < 40; ++i) {
    OwnedJob owned = random_job(rng, std::array{1.0, 0.5, 0.1}[rng() % 3]);
    for (const test::KernelSet& set : test::kernel_sets()) {
      if (set.kernels == nullptr) {
        continue;
      }
      SCOPED_TRACE(testing::Message() << "job " << i << ", " << set.name);
      const MxuKernelSet& chosen = choose_mxu_kernel_set(*set.kernels, owned.job);
      const MxuKernelChoice choice =
          choose_mxu_kernel(chosen, owned.job, owned.job.rows(), segments_of(owned.job));
      const MxuKernelUse use;
      MxuFastEngine(spec::MxuShape{}, set.kernels).run(owned.job);
      ASSERT_EQ(use.entries[0].set, &chosen);
      ASSERT_EQ(use.entries[1].set, nullptr);
      ASSERT_EQ(total(use.entries[0]), owned.job.terms());
      const auto terms = [&](MxuKernelKind kind) {
        return use.entries[0].terms[static_cast<size_t>(kind)];
      };
      EXPECT_TRUE(choice.sparse || terms(MxuKernelKind::kSparse) == 0);
      // With empty segments after the only one of its tile, which end in + 0.
      const bool one_segment = owned.job.k() <= 32;
      if (chosen.is_short != nullptr && one_segment) {
        EXPECT_EQ(terms(MxuKernelKind::kShort), owned.job.terms());
      }
      const std::string name = table_name(set);
      for (const MxuKernelKind kind :
           {MxuKernelKind::kShort, MxuKernelKind::kSparse, MxuKernelKind::kDense}) {
        if (terms(kind) != 0 && &chosen == set.kernels) {
          const MxuKernelRow* const row = mxu_kernel_row(name, kind);
          ASSERT_NE(row, nullptr);
          ran.insert(row->name);
        }
      }
    }
  }
  for (const char* const each : {"avx2.short", "avx2.sparse", "avx2.dense", "amx.dense"}) {
    EXPECT_TRUE(ran.contains(each)) << each << " never ran, on a host with AVX2";
  }
}

TEST(MxuKernelTable, HasARowForEachKernelOfASet) {
  for (const test::KernelSet& set : test::kernel_sets()) {
    if (set.kernels == nullptr) {
      continue;
    }
    const std::string name = table_name(set);
    EXPECT_NE(mxu_kernel_row(name, MxuKernelKind::kDense), nullptr) << name;
    EXPECT_EQ(mxu_kernel_row(name, MxuKernelKind::kShort) != nullptr,
              set.kernels->is_short != nullptr)
        << name;
    EXPECT_EQ(mxu_kernel_row(name, MxuKernelKind::kSparse) != nullptr,
              set.kernels->multiply_sparse != nullptr)
        << name;
  }
  for (const MxuKernelRow& row : mxu_kernel_table()) {
    EXPECT_EQ(mxu_kernel_row(row.set, row.kind), &row) << row.name << " is there twice";
  }
}

TEST(MxuKernelTable, IsThatOfTheManual) {
  const auto page =
      std::filesystem::path(__FILE__).parent_path() / "../../../docs/matrix_kernels.md";
  std::ifstream file(page);
  ASSERT_TRUE(file) << page;
  std::vector<std::string> found;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| `")) {
      found.push_back(line);
    }
  }
  ASSERT_EQ(found.size(), mxu_kernel_table().size());
  for (size_t i = 0; i < found.size(); ++i) {
    const MxuKernelRow& row = mxu_kernel_table()[i];
    std::ostringstream text;
    text << "| `" << row.name << "` | " << row.results << " | " << row.rate << " | " << row.when
         << " |";
    EXPECT_EQ(found[i], text.str());
  }
}

}  // namespace
}  // namespace tpu::model
