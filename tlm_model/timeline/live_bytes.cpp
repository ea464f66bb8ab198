// Pages by what happened to them last.
#include "timeline/live_bytes.hpp"

namespace tpu::model {

void LivePages::begin(uint64_t cycle) {
  begin_ = cycle;
  pages_.clear();
  changes_.clear();
}

void LivePages::live(uint64_t from, uint64_t to) {
  ++changes_[from];
  --changes_[to];
}

void LivePages::touch(uint64_t cycle, uint64_t low, uint64_t bytes, bool write) {
  if (bytes == 0) {
    return;
  }
  for (uint64_t number = low / page_bytes_; number <= (low + bytes - 1) / page_bytes_; ++number) {
    const auto [found, first] = pages_.try_emplace(number, Page{.since = write ? cycle : begin_});
    Page& page = found->second;
    if (!first && write && page.read) {
      live(page.since, page.last);
      page.since = cycle;
    }
    page.read = !write;
    page.last = cycle;
  }
}

std::vector<spec::LiveBytes> LivePages::finish(uint64_t cycle) {
  for (const auto& [number, page] : pages_) {
    live(page.since, page.read ? page.last : cycle);
  }
  pages_.clear();
  std::vector<spec::LiveBytes> series;
  int64_t count = 0;
  for (const auto& [at, change] : changes_) {
    count += change;
    if (change != 0) {
      series.push_back({at, static_cast<uint64_t>(count) * page_bytes_});
    }
  }
  changes_.clear();
  return series;
}

}  // namespace tpu::model
