// Large values that are computed again where they are read late, in place of being kept until then:
//   before   y = gelu(x); a = dot(y, w); ...; b = dot(g, y)
//   after    y = gelu(x); a = dot(y, w); ...; z = gelu(x); b = dot(g, z)
// Only values of element-by-element ops, made of what is alive until then anyway, or of one value
// that is kept in place of several (a product in place of its GELU and the derivative). Each is the
// same arithmetic on the same values, so that its bits stay. For programs that do not fit into HBM.
#pragma once

#include "ir/error_kinds.hpp"
#include "ir/graph.hpp"

namespace tpu::compiler {

// Makes the peak smaller by its excess and a margin, if there are so many bytes of such values. The
// ops that compute them again are in Module::late. Returns the bytes that are not kept any more.
int64_t rematerialise(Module& module, const MemoryPeak& peak);

}  // namespace tpu::compiler
