// Runs a job on the reference and on the fast engine with every instruction set of the host and the
// emulated ones, and compares all bits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "mxu/mxu_fast.hpp"
#include "mxu/mxu_scalar.hpp"
#include "mxu_job_source.hpp"
#include "mxu_kernel_sets.hpp"

namespace tpu::test {

// Room for a copy of a job's results that lies as they do in lines of the cache.
class CopyInLines {
 public:
  explicit CopyInLines(const std::vector<uint32_t>& values) : room_(values.size() + kLine) {
    const auto wanted = reinterpret_cast<uintptr_t>(values.data()) / sizeof(uint32_t) % kLine;
    const auto found = reinterpret_cast<uintptr_t>(room_.data()) / sizeof(uint32_t) % kLine;
    data_ = room_.data() + (wanted + kLine - found) % kLine;
    std::copy(values.begin(), values.end(), data_);
  }
  uint32_t* data() { return data_; }

 private:
  static constexpr size_t kLine = 16;  // words
  std::vector<uint32_t> room_;
  uint32_t* data_;
};

inline void expect_same(const OwnedJob& owned, const std::string& what,
                        const spec::MxuShape& shape = {}) {
  model::MxuScalarEngine reference(shape);
  std::vector<uint32_t> wanted = owned.out;
  reference.run(owned.on(wanted));
  for (const KernelSet& set : kernel_sets()) {
    model::MxuFastEngine engine(shape, set.kernels);
    CopyInLines got(owned.out);
    engine.run(owned.on(got.data()));
    for (size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_EQ(got.data()[i], wanted[i]) << what << ", " << set.name << ", element " << i;
    }
  }
}

}  // namespace tpu::test
