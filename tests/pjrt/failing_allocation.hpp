// Memory that runs out in the middle of a call, in the plugin too: the library takes the
// operator new of the program that loads it.
#pragma once

namespace tpu::test {

/// The next `after` allocations of this thread succeed, and one fails.
void fail_allocation(int after);

}  // namespace tpu::test
