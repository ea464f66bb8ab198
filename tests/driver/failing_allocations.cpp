// In a file of its own: where the compiler sees both sides it takes malloc and delete for a
// mistake.
#include "tests/driver/failing_allocations.hpp"

#include <cstdlib>
#include <new>

namespace tpu::driver::test {

thread_local int allocations_left = -1;

}  // namespace tpu::driver::test

void* operator new(size_t bytes) {
  int& left = tpu::driver::test::allocations_left;
  void* memory = left >= 0 && left-- == 0 ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*bytes*/) noexcept { std::free(memory); }
