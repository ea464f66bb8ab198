// The body of an indexed_combine as a vector kernel on one window.
#pragma once

#include <memory>
#include <vector>

#include "vpu/nest.hpp"
#include "vpu/vpu_gen.hpp"

namespace tpu::compiler {

struct CombineBody {
  Region region;  // arguments: windows, then updates
  std::vector<const Value*> results;
  Nest nest;
  VpuGenResult code;
};

// Throws Error for a body that no vector kernel computes.
std::unique_ptr<const CombineBody> make_combine_body(const Op& op);

}  // namespace tpu::compiler
