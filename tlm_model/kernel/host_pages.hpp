// Zeroed memory of the host in huge pages where it gives them: the first touch of a large block is
// then several times faster, and walks over it miss the TLB less.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <new>

namespace tpu::model {

inline constexpr size_t kHugePage = size_t{2} << 20;

// Never-touched memory at an address that is a multiple of kHugePage; of `protection`
// PROT_NONE, addresses alone. Throws std::bad_alloc.
inline uint8_t* map_host_pages(size_t bytes, int protection = PROT_READ | PROT_WRITE) {
  const size_t mapped = bytes + kHugePage;
  void* map = mmap(nullptr, mapped, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) {
    throw std::bad_alloc();
  }
  const auto at = reinterpret_cast<uintptr_t>(map);
  const uintptr_t begin = (at + kHugePage - 1) / kHugePage * kHugePage;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));  // aarch64: up to 64 KiB
  const uintptr_t end = (begin + bytes + page - 1) / page * page;
  if (begin != at) {
    munmap(map, begin - at);
  }
  if (end != at + mapped) {
    munmap(static_cast<uint8_t*>(map) + (end - at), at + mapped - end);
  }
  uint8_t* const memory = static_cast<uint8_t*>(map) + (begin - at);
#ifdef MADV_HUGEPAGE
  madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: hosts without it give small pages
#endif
  return memory;
}

// Makes memory of addresses. Throws std::bad_alloc.
inline void open_host_pages(void* memory, size_t bytes) {
  if (mprotect(memory, bytes, PROT_READ | PROT_WRITE) != 0) {
    throw std::bad_alloc();
  }
}

inline void unmap_host_pages(void* memory, size_t bytes) { munmap(memory, bytes); }

}  // namespace tpu::model
