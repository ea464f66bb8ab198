// Work items that do not depend on each other, on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace tpu::driver {

/// Calls `work(i)` for each i below `count`, in any order. It throws nothing.
template <typename Work>
void for_all(size_t count, unsigned threads, const Work& work) {
  std::atomic<size_t> next = 0;
  const auto loop = [&] {
    for (size_t i = next++; i < count; i = next++) {
      work(i);
    }
  };
  std::vector<std::jthread> helpers;
  for (size_t i = 1; i < std::min<size_t>(threads, count); ++i) {
    helpers.emplace_back(loop);
  }
  loop();
}

}  // namespace tpu::driver
