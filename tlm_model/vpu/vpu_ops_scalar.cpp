// Lane code of the vector unit, 1 word at a time; compile options in CMakeLists.txt.
#define TPU_VPU_WIDTH 1
#include "vpu/vpu_ops_table.hpp"

namespace tpu::model {

VpuOpTable vpu_ops_scalar() { return {kFunctions, kSplats.first, kSplats.second, kFunctionCount}; }

}  // namespace tpu::model
