// C interface of TensorFlow's TPU library: the profiler. types.h.
#pragma once

#include "abi/types.h"

struct TpuProfiler;

#pragma GCC visibility push(default)
extern "C" {

void TpuProfiler_Create(TpuProfiler** profiler, TF_Status* status);
void TpuProfiler_Destroy(TpuProfiler* profiler);
void TpuProfiler_Start(TpuProfiler* profiler, TF_Status* status);
void TpuProfiler_Stop(TpuProfiler* profiler, TF_Status* status);
void TpuProfiler_CollectData(TpuProfiler* profiler, TF_Status* status, uint8_t* buffer,
                             size_t* size);

}  // extern "C"
#pragma GCC visibility pop
