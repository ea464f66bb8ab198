// Page pool on anonymous memory maps.
#include "hbm/page_pool.hpp"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace tpu::model {
namespace {

void* map_pages(size_t pages) {
  void* chunk = mmap(nullptr, pages * kHbmPageBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (chunk == MAP_FAILED) {
    throw std::bad_alloc();
  }
  return chunk;
}

}  // namespace

PagePool::PagePool() : zero_page_(static_cast<uint8_t*>(map_pages(1))) {}

PagePool::~PagePool() {
  munmap(zero_page_, kHbmPageBytes);
  for (void* chunk : chunks_) {
    munmap(chunk, kChunkPages * kHbmPageBytes);
  }
}

HbmPage* PagePool::make(bool zeroed) {
  HbmPage* page = nullptr;
  if (!used_.empty()) {
    page = used_.back();
    used_.pop_back();
    if (zeroed) {
      std::memset(page->data, 0, kHbmPageBytes);
    }
  } else {
    if (fresh_.empty()) {
      grow();
    }
    page = fresh_.back();
    fresh_.pop_back();
  }
  page->owners = 1;
  ++in_use_;
  return page;
}

void PagePool::drop_owner(HbmPage* page) {
  --page->owners;
  page->left = page->read_pins != 0 || page->write_pins != 0;
  release_if_unused(page);
}

void PagePool::unpin(HbmPage* page, bool write) {
  --(write ? page->write_pins : page->read_pins);
  page->left = page->left && (page->read_pins != 0 || page->write_pins != 0);
  release_if_unused(page);
}

void PagePool::release_if_unused(HbmPage* page) {
  if (page->owners == 0 && page->read_pins == 0 && page->write_pins == 0) {
    page->left = false;
    used_.push_back(page);
    --in_use_;
  }
}

void PagePool::grow() {
  auto* chunk = static_cast<uint8_t*>(map_pages(kChunkPages));
  chunks_.push_back(chunk);
  for (size_t i = kChunkPages; i-- > 0;) {
    pages_.push_back(HbmPage{.data = chunk + i * kHbmPageBytes});
    fresh_.push_back(&pages_.back());
  }
}

}  // namespace tpu::model
