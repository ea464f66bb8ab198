// Page pool on anonymous memory maps.
#include "hbm/page_pool.hpp"

#include <cstring>

#include "kernel/host_pages.hpp"

namespace tpu::model {

PagePool::PagePool() : zero_page_(map_host_pages(kHbmPageBytes)) {}

PagePool::~PagePool() {
  unmap_host_pages(zero_page_, kHbmPageBytes);
  for (void* chunk : chunks_) {
    unmap_host_pages(chunk, kChunkPages * kHbmPageBytes);
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
  uint8_t* chunk = map_host_pages(kChunkPages * kHbmPageBytes);
  chunks_.push_back(chunk);
  for (size_t i = kChunkPages; i-- > 0;) {
    pages_.push_back(HbmPage{.data = chunk + i * kHbmPageBytes});
    fresh_.push_back(&pages_.back());
  }
}

}  // namespace tpu::model
