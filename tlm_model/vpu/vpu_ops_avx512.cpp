// Lane code of the vector unit, 16 words at a time; compile options in CMakeLists.txt.
#define TPU_VPU_WIDTH 16
#include "vpu/vpu_ops_table.hpp"

namespace tpu::model {

VpuOpTable vpu_ops_avx512() { return {kFunctions, kSplats.first, kSplats.second, kFunctionCount}; }

}  // namespace tpu::model
