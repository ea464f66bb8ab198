#include "kernel/full_blocks.hpp"

#include <algorithm>

#include "command/vpu_footprint.hpp"

namespace tpu::compiler {

namespace {

bool leaves_rows_empty(const Kernel& k) {
  constexpr int64_t kWorth = 64;  // full blocks
  if (k.kind != KernelClass::kLoop || k.loop().first > 0) {
    return false;
  }
  const Nest& nest = k.loop().nest;
  return !nest.has_reduce && nest.loops.size() == 2 && nest.loops[1].n < spec::kVpuSublanes &&
         nest.loops[0].n % (spec::kVpuSublanes * spec::kVpuLanes) == 0 &&
         nest.loops[0].n >= kWorth * spec::kVpuSublanes * spec::kVpuLanes;
}

void cut_outer(Nest& nest, int64_t inner) {
  nest.loops[0].n /= inner;
  nest.loops.insert(nest.loops.begin() + 1, {inner, false});
  const auto cut = [inner](View& v) {
    const int64_t stride = v.stride[0];
    v.stride[0] *= inner;
    v.stride.insert(v.stride.begin() + 1, stride);
  };
  std::ranges::for_each(nest.indexes, cut);
  std::ranges::for_each(nest.accesses, [&](NestAccess& a) { cut(a.view); });
}

}  // namespace

void fill_blocks(KernelProgram& program) {
  for (Kernel& k : program.kernels) {
    if (leaves_rows_empty(k)) {
      cut_outer(k.as<LoopPart>().nest, spec::kVpuLanes);
    }
  }
}

}  // namespace tpu::compiler
