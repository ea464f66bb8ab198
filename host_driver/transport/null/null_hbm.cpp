// Pages of the null board's HBM.
#include "transport/null/null_hbm.hpp"

#include <algorithm>
#include <cstring>

namespace tpu::driver {

namespace {
constexpr uint64_t kHbmCopyPieceBytes = uint64_t{1} << 20;
}  // namespace

void NullHbm::read(uint64_t at, std::span<std::byte> out) const {
  while (!out.empty()) {
    const uint64_t offset = at % kPage;
    const size_t run = std::min<uint64_t>(kPage - offset, out.size());
    const auto page = pages_.find(at / kPage);
    if (page == pages_.end()) {
      std::memset(out.data(), 0, run);
    } else {
      std::memcpy(out.data(), page->second.data() + offset, run);
    }
    at += run;
    out = out.subspan(run);
  }
}

void NullHbm::write(uint64_t at, std::span<const std::byte> data) {
  while (!data.empty()) {
    const uint64_t offset = at % kPage;
    const size_t run = std::min<uint64_t>(kPage - offset, data.size());
    std::vector<std::byte>& page = pages_[at / kPage];
    page.resize(kPage);
    std::memcpy(page.data() + offset, data.data(), run);
    at += run;
    data = data.subspan(run);
  }
}

void NullHbm::fill(uint64_t at, uint64_t bytes, uint32_t pattern) {
  const std::vector<uint32_t> words(kPage / sizeof(pattern), pattern);
  while (bytes > 0) {
    const uint64_t run = std::min(kPage - at % kPage, bytes);
    if (run == kPage && pattern == 0) {
      pages_.erase(at / kPage);
    } else {
      write(at, std::as_bytes(std::span(words)).first(run));
    }
    at += run;
    bytes -= run;
  }
}

void NullHbm::copy_from(const NullHbm& source, uint64_t from, uint64_t to, uint64_t bytes) {
  std::vector<std::byte> piece(std::min(bytes, kHbmCopyPieceBytes));
  for (uint64_t at = 0; at < bytes; at += kHbmCopyPieceBytes) {
    const auto part = std::span(piece).first(std::min(kHbmCopyPieceBytes, bytes - at));
    source.read(from + at, part);
    write(to + at, part);
  }
}

}  // namespace tpu::driver
