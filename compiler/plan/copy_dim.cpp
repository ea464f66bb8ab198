#include "plan/copy_dim.hpp"

#include <cstddef>

namespace tpu::compiler {

std::vector<CopyDim> merged(std::vector<CopyDim> dims) {
  std::erase_if(dims, [](const CopyDim& d) { return d.n == 1; });
  for (size_t i = dims.size(); i-- > 1;) {
    const CopyDim& in = dims[i];
    const CopyDim& out = dims[i - 1];
    if (out.src == in.n * in.src && out.dst == in.n * in.dst) {
      dims[i].n *= out.n;
      dims.erase(dims.begin() + static_cast<ptrdiff_t>(i) - 1);
    }
  }
  return dims;
}

}  // namespace tpu::compiler
