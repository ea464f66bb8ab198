// Which operations must not pass each other.
#include "src/operations/operation.hpp"

#include <algorithm>

namespace tpu::driver {
namespace {

using Uses = std::vector<std::shared_ptr<Allocation>>;

bool share(const Uses& a, const Uses& b) {
  return std::any_of(a.begin(), a.end(), [&](const auto& range) {
    return std::find(b.begin(), b.end(), range) != b.end();
  });
}

}  // namespace

bool conflict(const Operation& a, const Operation& b) {
  return share(a.writes, b.writes) || share(a.writes, b.reads) || share(a.reads, b.writes);
}

}  // namespace tpu::driver
