#include "failing_allocation.hpp"

#include <cstdlib>
#include <new>

namespace {

thread_local int left = -1;  // below 0: none fails

}  // namespace

namespace tpu::test {

void fail_allocation(int after) { left = after; }

}  // namespace tpu::test

void* operator new(std::size_t size) {
  if (left >= 0 && left-- == 0) {
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(size == 0 ? 1 : size)) {
    return memory;
  }
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
