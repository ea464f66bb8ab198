// Lane code of the vector unit, 8 words at a time; compile options in CMakeLists.txt.
#define TPU_VPU_WIDTH 8
#include "vpu/vpu_ops_table.hpp"

namespace tpu::model {

VpuOpTable vpu_ops_avx2() { return {kFunctions, kSplats.first, kSplats.second, kFunctionCount}; }

}  // namespace tpu::model
