// Lane code of the vector unit, 4 words at a time; compile options in CMakeLists.txt.
#define TPU_VPU_WIDTH 4
#include "vpu/vpu_ops_table.hpp"

namespace tpu::model {

VpuOpTable vpu_ops_neon() { return {kFunctions, kSplats.first, kSplats.second, kFunctionCount}; }

}  // namespace tpu::model
