// The AMX instructions of the model's kernels as functions on a tile register file in memory, one a
// thread, by Intel's descriptions. Included ahead of a kernel source, whose intrinsics then mean
// these. What the processor answers with a fault ends the process with a message.
#pragma once

#include <immintrin.h>

namespace tpu::emulation {

void tile_loadconfig(const void* config);
void tile_release();
void tile_zero(int tile);
void tile_loadd(int tile, const void* base, long stride);
void tile_stored(int tile, void* base, long stride);
void tile_dpbf16ps(int target, int left, int right);

// Between tile_loadconfig and tile_release of this thread.
bool tiles_in_use();

}  // namespace tpu::emulation

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps

#define _tile_loadconfig tpu::emulation::tile_loadconfig
#define _tile_release tpu::emulation::tile_release
#define _tile_zero tpu::emulation::tile_zero
#define _tile_loadd tpu::emulation::tile_loadd
#define _tile_stored tpu::emulation::tile_stored
#define _tile_dpbf16ps tpu::emulation::tile_dpbf16ps
