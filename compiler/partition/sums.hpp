// Fewer sums over cores: what is added afterwards is added first, and a loop that adds up sums adds
// up what each core has of them, or that stores them side by side. Private to the pass `partition`.
//
//   add(all_reduce(x), all_reduce(y))           =>   all_reduce(add(x, y))   reduce_scatter alike
//   while (s = s0) { s = s + all_reduce(x) }    =>   s0 + all_reduce(while (p = 0) { p = p + x })
//   while (a = 0) { a[i] = all_reduce(x) }      =>   all_reduce(while (p = 0) { p[i] = x })
#pragma once

#include "partition/mover.hpp"

namespace tpu::compiler {

// Entries of the log go over to the sums that take the place of others.
void merge_sums(Module& module, MoveLog& log);

}  // namespace tpu::compiler
