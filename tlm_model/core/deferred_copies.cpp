// Ranges of VMEM that refer to pages of HBM.
#include "core/deferred_copies.hpp"

#include <algorithm>

#include "kernel/host_profile.hpp"

namespace tpu::model {
namespace {

// More ranges cost more to look through and to move than they save.
constexpr size_t kMostRanges = 512;

}  // namespace

DeferredCopies::DeferredCopies(uint8_t* vmem, uint64_t vmem_bytes, DataOrder& order, JobPool& pool)
    : vmem_(vmem), most_held_(2 * vmem_bytes), order_(order), pool_(pool) {}

bool DeferredCopies::defer(uint64_t at, uint64_t bytes, HbmIf& hbm, uint64_t address) {
  release_done();
  while (!ranges_.empty() && (held_ + bytes > most_held_ || ranges_.size() >= kMostRanges)) {
    settle_oldest();
  }
  if (free_.empty()) {
    free_.push_back(&sources_.emplace_back());
  }
  Source* const source = free_.back();
  const uint8_t* const data = hbm.hold(source->pages, address, bytes, false);
  if (data == nullptr) {
    return false;
  }
  free_.pop_back();
  source->hbm = &hbm;
  source->bytes = bytes;
  source->number = number_++;
  source->uses = source->ranges = 1;
  source->writers.clear();
  hbm.order().find({.low = address, .high = address + bytes}, false, source->writers);
  held_ += bytes;
  const auto place = ranges_.begin() + static_cast<ptrdiff_t>(next_from(at));
  ranges_.insert(
      place, {.low = at,
              .high = at + bytes,
              .shift = reinterpret_cast<intptr_t>(data) - reinterpret_cast<intptr_t>(vmem_ + at),
              .source = source});
  HostProfile::count(HostWork::kDeferred, bytes);
  return true;
}

// Several ranges serve as one where their bytes follow each other there too.
ptrdiff_t DeferredCopies::read(uint64_t low, uint64_t high, Uses& uses, DataUses& reader) {
  const size_t first = first_behind(low);
  const size_t last = next_from(high);
  if (first >= last) {
    return 0;
  }
  bool joined = ranges_[first].low <= low && ranges_[last - 1].high >= high;
  for (size_t i = first + 1; joined && i < last; ++i) {
    joined = ranges_[i].low == ranges_[i - 1].high && ranges_[i].shift == ranges_[i - 1].shift;
  }
  if (!joined) {
    settle(low, high);
    return 0;
  }
  for (size_t i = first; i < last; ++i) {
    ++ranges_[i].source->uses;
    uses.push_back(ranges_[i].source);
    reader.follow(ranges_[i].source->writers);
  }
  return ranges_[first].shift;
}

void DeferredCopies::release(Uses& uses) {
  for (Source* source : uses) {
    unuse(source);
  }
  uses.clear();
}

void DeferredCopies::write(uint64_t low, uint64_t high, bool whole) {
  const size_t first = first_behind(low);
  const size_t last = next_from(high);
  if (first >= last) {
    return;
  }
  const Range& range = ranges_[first];
  if (ranges_.size() >= kMostRanges && range.low < low && range.high > high) {
    settle(range.low, range.high);  // in place of one more range
    return;
  }
  if (!whole) {
    copy(first, last, low, high);
  }
  cut(first, last, low, high);
}

size_t DeferredCopies::first_behind(uint64_t at) const {
  const auto found = std::ranges::upper_bound(ranges_, at, {}, &Range::high);
  return static_cast<size_t>(found - ranges_.begin());
}

size_t DeferredCopies::next_from(uint64_t at) const {
  const auto found = std::ranges::lower_bound(ranges_, at, {}, &Range::low);
  return static_cast<size_t>(found - ranges_.begin());
}

void DeferredCopies::copy(size_t first, size_t last, uint64_t low, uint64_t high) {
  Copy& copy = copies_[next_copy_];
  next_copy_ = (next_copy_ + 1) % copies_.size();
  pool_.join(copy.work);
  release(copy.uses);
  copy.work.clear();
  for (size_t i = first; i < last; ++i) {
    const Range& range = ranges_[i];
    const uint64_t begin = std::max(low, range.low);
    const uint64_t end = std::min(high, range.high);
    copy.work.add(vmem_ + begin, vmem_ + begin + range.shift, end - begin);
    touches_.add(order_, {.low = begin, .high = end}, true);
    touches_.follow(range.source->writers);
    ++range.source->uses;
    copy.uses.push_back(range.source);
  }
  copy.work.launch(pool_, touches_);
}

void DeferredCopies::release_done() {
  for (Copy& copy : copies_) {
    if (!copy.uses.empty() && copy.work.done()) {
      release(copy.uses);
    }
  }
}

void DeferredCopies::finish() {
  for (Copy& copy : copies_) {
    pool_.join(copy.work);
  }
  release_done();
}

// Of [low, high) nothing is deferred any more.
void DeferredCopies::cut(size_t first, size_t last, uint64_t low, uint64_t high) {
  if (last == first + 1 && ranges_[first].low < low && ranges_[first].high > high) {
    Range behind = ranges_[first];
    behind.low = high;
    ++behind.source->uses;
    ++behind.source->ranges;
    ranges_[first].high = low;
    ranges_.insert(ranges_.begin() + static_cast<ptrdiff_t>(last), behind);
    return;
  }
  if (ranges_[first].low < low) {
    ranges_[first++].high = low;
  }
  if (first < last && ranges_[last - 1].high > high) {
    ranges_[--last].low = high;
  }
  for (size_t i = first; i < last; ++i) {
    drop_range(ranges_[i].source);
  }
  ranges_.erase(ranges_.begin() + static_cast<ptrdiff_t>(first),
                ranges_.begin() + static_cast<ptrdiff_t>(last));
}

void DeferredCopies::unuse(Source* source) {
  if (--source->uses == 0) {
    source->hbm->release(source->pages);
    free_.push_back(source);
  }
}

void DeferredCopies::drop_range(Source* source) {
  if (--source->ranges == 0) {
    held_ -= source->bytes;
  }
  unuse(source);
}

void DeferredCopies::settle_oldest() {
  const Range oldest = *std::ranges::min_element(
      ranges_, {}, [](const Range& range) { return range.source->number; });
  settle(oldest.low, oldest.high);
}

}  // namespace tpu::model
