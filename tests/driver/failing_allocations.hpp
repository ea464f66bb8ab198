// Lack of host memory on demand: the program's operator new can be told to fail once.
#pragma once

namespace tpu::driver::test {

/// Allocations of this thread that still work before one throws std::bad_alloc; negative: all do.
extern thread_local int allocations_left;

}  // namespace tpu::driver::test
