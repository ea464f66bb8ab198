// One function for each slot of the table that we have. The thunks of api.cpp call them with
// arguments that have all fields (those that an older caller does not know are zero); they set
// every field of the answer, or throw.
#pragma once

#include "pjrt_abi.h"

extern "C" const PJRT_Api* GetPjrtApi();

namespace tpu::pjrt {

#define TPU_PJRT_CALL(name) void call(name##_Args& args);
#define TPU_PJRT_NONE(name)
TPU_PJRT_SLOTS(TPU_PJRT_CALL, TPU_PJRT_CALL, TPU_PJRT_NONE)
TPU_PJRT_LAYOUTS(TPU_PJRT_CALL)
#undef TPU_PJRT_CALL
#undef TPU_PJRT_NONE

void call(PJRT_Shardings_PJRT_Executable_ParameterShardings_Args& args);
void call(PJRT_Shardings_PJRT_Executable_OutputShardings_Args& args);
void call(PJRT_Register_Custom_Partitioner_Args& args);
void call(PJRT_Register_Batch_Partitionable_Args& args);

}  // namespace tpu::pjrt
