// Page table walks of the HBM store.
#include "hbm/hbm_store.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

namespace tpu::model {
namespace {

// Calls body(page index, offset in the page, bytes, bytes done before) for each page of a range.
template <typename Body>
void for_each_page(uint64_t address, uint64_t bytes, Body body) {
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t offset = (address + done) % kHbmPageBytes;
    const uint64_t part = std::min(bytes - done, kHbmPageBytes - offset);
    body((address + done) / kHbmPageBytes, offset, part, done);
    done += part;
  }
}

}  // namespace

static_assert(kHbmPageBytes == uint64_t{1} << PageSet::kPageShift);

HbmStore::HbmStore(PagePool& pool, uint64_t bytes)
    : pool_(pool),
      pages_(bytes / kHbmPageBytes),
      table_(static_cast<HbmPage**>(std::calloc(std::max<uint64_t>(pages_, 1), sizeof(HbmPage*)))),
      home_(pages_ / PagePool::kBlockPages + 1, PagePool::kNoHome) {
  if (table_ == nullptr) {
    throw std::bad_alloc();
  }
  pool_.stores().push_back(this);
}

HbmStore::~HbmStore() {
  std::erase(pool_.stores(), this);
  for (HbmPage* page : std::span(table_.get(), end_)) {
    if (page != nullptr) {
      pool_.drop_owner(page);
    }
  }
}

void HbmStore::Free::operator()(HbmPage** table) const { std::free(table); }

void HbmStore::read(uint64_t address, std::span<uint8_t> data) const {
  order_.wait(address, address + data.size(), false);
  for_each_page(
      address, data.size(), [&](uint64_t page, uint64_t offset, uint64_t part, uint64_t done) {
        settle(page);
        const uint8_t* source = table_[page] != nullptr ? table_[page]->data : pool_.zero_page();
        std::memcpy(data.data() + done, source + offset, part);
      });
}

void HbmStore::write(uint64_t address, std::span<const uint8_t> data) {
  order_.wait(address, address + data.size(), true);
  for_each_page(
      address, data.size(), [&](uint64_t page, uint64_t offset, uint64_t part, uint64_t done) {
        const uint8_t* source = data.data() + done;
        const bool whole = part == kHbmPageBytes;
        // Zeros (fresh optimiser state, arguments of a timing-only run) need no memory of
        // the host.
        if ((whole || table_[page] == nullptr) &&
            std::memcmp(source, pool_.zero_page(), part) == 0) {
          drop(page);
          return;
        }
        if ((whole || table_[page] == nullptr) && share_equal(page, offset, {source, part})) {
          return;
        }
        const uint64_t run = (data.size() - done - 1) / kHbmPageBytes + 1;
        std::memcpy(writable(page, whole, run) + offset, source, part);
      });
}

bool HbmStore::share_equal(uint64_t page, uint64_t offset, std::span<const uint8_t> part) {
  const uint64_t end = offset + part.size();
  for (const HbmStore* store : pool_.stores()) {
    HbmPage* const other = page < store->end_ ? store->table_[page] : nullptr;
    if (other == nullptr || other == table_[page] || other->write_pins != 0 ||
        std::memcmp(other->data + offset, part.data(), part.size()) != 0 ||
        std::memcmp(other->data, pool_.zero_page(), offset) != 0 ||
        std::memcmp(other->data + end, pool_.zero_page(), kHbmPageBytes - end) != 0) {
      continue;
    }
    take(page, other);
    return true;
  }
  return false;
}

void HbmStore::drop(uint64_t page) {
  if (table_[page] != nullptr) {
    pool_.drop_owner(table_[page]);
    table_[page] = nullptr;
  }
}

void HbmStore::fill(uint64_t address, uint64_t bytes, uint32_t pattern) {
  order_.wait(address, address + bytes, true);
  for_each_page(address, bytes, [&](uint64_t page, uint64_t offset, uint64_t part, uint64_t done) {
    if (pattern == 0 && (part == kHbmPageBytes || table_[page] == nullptr)) {
      drop(page);
      return;
    }
    uint8_t* target = writable(page, part == kHbmPageBytes) + offset;
    for (uint64_t i = 0; i < part; ++i) {
      target[i] = static_cast<uint8_t>(pattern >> (8 * ((done + i) % 4)));
    }
  });
}

void HbmStore::copy_from(const HbmStore& source, uint64_t source_address, uint64_t address,
                         uint64_t bytes) {
  source.order_.wait(source_address, source_address + bytes, false);
  order_.wait(address, address + bytes, true);
  for_each_page(address, bytes, [&](uint64_t page, uint64_t offset, uint64_t part, uint64_t done) {
    const uint64_t from = source_address + done;
    HbmPage* shared = source.table_[from / kHbmPageBytes];
    if (part == kHbmPageBytes && from % kHbmPageBytes == 0 &&
        (shared == nullptr || shared->write_pins == 0)) {
      take(page, shared);
      return;
    }
    source.read(from, {writable(page, part == kHbmPageBytes) + offset, part});
  });
}

void HbmStore::share(const PageSet& held, uint64_t address, bool zero) {
  const uint64_t index = address / kHbmPageBytes;
  const auto pin = std::ranges::find(held.pinned_, index, &PageSet::Pin::index);
  take(index, zero ? nullptr : pin->page);
}

void HbmStore::settled(uint64_t address, PagesToCome& bytes) {
  HbmPage* const page = table_[address / kHbmPageBytes];
  if (page != nullptr && page->to_come == &bytes) {
    page->to_come = nullptr;
  }
}

void HbmStore::take(uint64_t page, HbmPage* shared) {
  if (shared != nullptr) {
    ++shared->owners;
  }
  drop(page);
  set(page, shared);
}

void HbmStore::pin(PageSet& set, uint64_t address, uint64_t bytes, bool write, bool overwrite) {
  set.write_ = write;
  for_each_page(address, bytes, [&](uint64_t page, uint64_t offset, uint64_t part, uint64_t done) {
    uint8_t*& data = set.data_[page - set.first_page_];
    if (data != nullptr) {
      return;
    }
    if (write) {
      const uint64_t run = (bytes - done - 1) / kHbmPageBytes + 1;
      data = writable(page, overwrite && part == kHbmPageBytes, run);
    } else if (settle(page); table_[page] == nullptr) {
      data = const_cast<uint8_t*>(pool_.zero_page());  // readers only
      return;
    } else {
      data = table_[page]->data;
    }
    ++(write ? table_[page]->write_pins : table_[page]->read_pins);
    set.pinned_.push_back({.page = table_[page],
                           .index = page,
                           .offset = static_cast<uint32_t>(offset),
                           .bytes = write && overwrite ? static_cast<uint32_t>(part) : 0});
  });
}

const uint8_t* HbmStore::hold(PageSet& set, uint64_t address, uint64_t bytes, bool done) {
  const uint64_t first = address / kHbmPageBytes;
  const uint64_t last = (address + bytes - 1) / kHbmPageBytes;
  for (uint64_t page = first; page <= last; ++page) {
    settle(page);
  }
  for (uint64_t page = first; page <= last; ++page) {
    const HbmPage* const entry = table_[page];
    if (entry == nullptr || (done && entry->write_pins != 0) ||
        entry->data != table_[first]->data + (page - first) * kHbmPageBytes) {
      return nullptr;
    }
  }
  for (uint64_t page = first; page <= last; ++page) {
    ++table_[page]->holds;
    set.pinned_.push_back({.page = table_[page], .index = page, .offset = 0, .bytes = 0});
  }
  return table_[first]->data + address % kHbmPageBytes;
}

void HbmStore::release(PageSet& set) {
  for (const PageSet::Pin& pin : set.pinned_) {
    pool_.drop_hold(pin.page);
  }
  set.pinned_.clear();
}

void HbmStore::unpin(PageSet& set) {
  for (const PageSet::Pin& pin : set.pinned_) {
    pool_.unpin(pin.page, set.write_);
    if (cleared(pin)) {
      drop(pin.index);
    }
  }
  set.pinned_.clear();
}

// Another job may have written there since.
bool HbmStore::cleared(const PageSet::Pin& pin) const {
  return pin.zero && table_[pin.index] == pin.page && pin.page->write_pins == 0 &&
         all_zero(pin.page->data, kHbmPageBytes);
}

void HbmStore::visit_state(spec::Archive& archive, PageNumbers& numbers) {
  const std::span<HbmPage* const> known(table_.get(), end_);
  uint64_t count = static_cast<uint64_t>(
      std::ranges::count_if(known, [](const HbmPage* page) { return page != nullptr; }));
  archive(count);
  if (archive.loading()) {
    for (; count > 0; --count) {
      load_page(archive, numbers);
    }
    return;
  }
  for (uint64_t index = 0; index < end_; ++index) {
    if (table_[index] != nullptr) {
      save_page(index, table_[index], archive, numbers);
    }
  }
}

// Contents follow where a number comes for the first time.
void HbmStore::save_page(uint64_t index, HbmPage* page, spec::Archive& archive,
                         PageNumbers& numbers) {
  auto [known, fresh] = numbers.of.try_emplace(page, numbers.of.size());
  archive(index, known->second);
  if (fresh) {
    archive.bytes(page->data, kHbmPageBytes);
  }
}

void HbmStore::load_page(spec::Archive& archive, PageNumbers& numbers) {
  uint64_t index = 0;
  uint64_t number = 0;
  archive(index, number);
  if (index >= pages_ || table_[index] != nullptr || number > numbers.pages.size()) {
    throw spec::ArchiveError("damaged page table of HBM: invalid or repeated entry of page " +
                             std::to_string(index));
  }
  if (number == numbers.pages.size()) {
    numbers.pages.push_back(pool_.make(false));
    numbers.pages.back()->version = pool_.next_version();
    archive.bytes(numbers.pages.back()->data, kHbmPageBytes);
  } else {
    ++numbers.pages[number]->owners;
  }
  set(index, numbers.pages[number]);
}

bool HbmStore::present(uint64_t address, uint64_t bytes) const {
  bool found = false;
  for_each_page(address, bytes, [&](uint64_t page, uint64_t, uint64_t, uint64_t) {
    found = found || table_[page] != nullptr;
  });
  return found;
}

// Short ranges that stand alone have no home: it would lie among pages that are never used, and the
// host gives memory by 2 MiB.
HbmPage* HbmStore::make(uint64_t page, bool zeroed, uint64_t run) {
  constexpr uint64_t kShortRun = 8;
  const HbmPage* const before = page > 0 ? table_[page - 1] : nullptr;
  const uint64_t range = page / PagePool::kBlockPages;
  PagePool::Wish wish{.after = before, .run = run};
  if (const HbmPage* const old = table_[page]; old != nullptr && old->owners > 1) {
    wish.shared = old;
    wish.range = range;
    wish.offset = static_cast<uint32_t>(page % PagePool::kBlockPages);
    wish.newest = page > 0 ? newest(page - 1) : nullptr;
  }
  if (before != nullptr || run > kShortRun) {
    if (home_[range] == PagePool::kNoHome) {
      home_[range] = pool_.reserve_block();
    }
    wish.home = home_[range] + static_cast<uint32_t>(page % PagePool::kBlockPages);
  }
  return pool_.make(zeroed, wish);
}

// Of all stores' pages in this place the one that was written last.
const HbmPage* HbmStore::newest(uint64_t page) const {
  const HbmPage* found = nullptr;
  for (const HbmStore* store : pool_.stores()) {
    const HbmPage* const each = page < store->end_ ? store->table_[page] : nullptr;
    if (each != nullptr && (found == nullptr || each->version > found->version)) {
      found = each;
    }
  }
  return found;
}

uint8_t* HbmStore::writable(uint64_t page, bool overwrite, uint64_t run) {
  if (!overwrite) {
    settle(page);
  }
  HbmPage*& entry = table_[page];
  if (entry == nullptr) {
    set(page, make(page, !overwrite, run));
  } else if (entry->owners > 1 || entry->left ||
             entry->holds > 0) {  // others read it, or jobs of one who left it
    HbmPage* own = make(page, false, run);
    if (!overwrite) {
      order_.wait(page * kHbmPageBytes, (page + 1) * kHbmPageBytes, false);
      std::memcpy(own->data, entry->data, kHbmPageBytes);
    }
    pool_.drop_owner(entry);
    entry = own;
  }
  entry->version = pool_.next_version();
  entry->to_come = nullptr;
  return entry->data;
}

}  // namespace tpu::model
