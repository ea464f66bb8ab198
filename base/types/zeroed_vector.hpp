// Large vectors whose elements are zero bytes at first: parts that nobody writes take no memory of
// the host, and no time. A pod has thousands of them.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace tpu {

// Elements that are made from nothing are zero bytes, whatever their defaults are. For vectors that
// have their size from the beginning: one that grows moves to other memory as all do, but one that
// shrinks and grows again keeps what was there.
template <typename T>
struct ZeroedAllocator {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  static_assert(alignof(T) <= alignof(std::max_align_t));  // as calloc() has it
  using value_type = T;

  ZeroedAllocator() = default;
  template <typename U>
  ZeroedAllocator(const ZeroedAllocator<U>& /*other*/) {}  // NOLINT(google-explicit-constructor)

  T* allocate(size_t count) {
    void* const memory = count <= std::numeric_limits<size_t>::max() / sizeof(T)
                             ? std::calloc(count, sizeof(T))
                             : nullptr;
    if (memory == nullptr) {
      throw std::bad_alloc();
    }
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t /*count*/) { std::free(memory); }

  void construct(T* /*element*/) {}
  template <typename... Arguments>
  void construct(T* element, Arguments&&... arguments) {
    ::new (static_cast<void*>(element)) T(std::forward<Arguments>(arguments)...);
  }

  friend bool operator==(const ZeroedAllocator& /*a*/, const ZeroedAllocator& /*b*/) {
    return true;
  }
};

template <typename T>
using ZeroedVector = std::vector<T, ZeroedAllocator<T>>;

}  // namespace tpu
