// Runs a job on the reference and on the fast engine with every instruction set of the host and the
// emulated ones, and compares all bits.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mxu/mxu_fast.hpp"
#include "mxu/mxu_scalar.hpp"
#include "mxu_job_source.hpp"
#include "mxu_kernel_sets.hpp"

namespace tpu::test {

inline void expect_same(const OwnedJob& owned, const std::string& what) {
  const spec::MxuShape shape;
  model::MxuScalarEngine reference(shape);
  std::vector<uint32_t> wanted = owned.out;
  reference.run(owned.on(wanted));
  for (const KernelSet& set : kernel_sets()) {
    model::MxuFastEngine engine(shape, set.kernels);
    std::vector<uint32_t> got = owned.out;
    engine.run(owned.on(got));
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], wanted[i]) << what << ", " << set.name << ", element " << i;
    }
  }
}

}  // namespace tpu::test
