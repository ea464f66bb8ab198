// Elements pass in pieces that stay in the host's caches.
#include "src/memory/word_planes.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace tpu::driver {
namespace {

constexpr size_t kWordBytes = 4;
constexpr size_t kWideBytes = 8;
constexpr size_t kConvertedBytes = size_t{64} << 10;

}  // namespace

bool in_planes(DType dtype) {
  return dtype == DType::kI64 || dtype == DType::kU64 || dtype == DType::kF64;
}

void split_words(std::span<const std::byte> elements, std::byte* low, std::byte* high) {
  const size_t count = elements.size() / kWideBytes;
  const std::byte* from = elements.data();
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(low + i * kWordBytes, from + i * kWideBytes, kWordBytes);
    std::memcpy(high + i * kWordBytes, from + i * kWideBytes + kWordBytes, kWordBytes);
  }
}

void join_words(const std::byte* low, const std::byte* high, std::span<std::byte> elements) {
  const size_t count = elements.size() / kWideBytes;
  std::byte* to = elements.data();
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(to + i * kWideBytes, low + i * kWordBytes, kWordBytes);
    std::memcpy(to + i * kWideBytes + kWordBytes, high + i * kWordBytes, kWordBytes);
  }
}

void fill_planes(const ElementSource& source, uint64_t at, std::span<std::byte> planes) {
  std::vector<std::byte> piece(std::min(planes.size(), kConvertedBytes));
  std::byte* high = planes.data() + planes.size() / 2;
  for (size_t done = 0; done < planes.size(); done += piece.size()) {
    const auto elements = std::span(piece).first(std::min(piece.size(), planes.size() - done));
    source(at + done, elements);
    split_words(elements, planes.data() + done / 2, high + done / 2);
  }
}

void drain_planes(std::span<const std::byte> planes, uint64_t at, uint64_t first, uint64_t end,
                  const ElementSink& sink) {
  std::vector<std::byte> piece(std::min(planes.size(), kConvertedBytes));
  const std::byte* high = planes.data() + planes.size() / 2;
  for (size_t done = 0; done < planes.size(); done += piece.size()) {
    const auto elements = std::span(piece).first(std::min(piece.size(), planes.size() - done));
    join_words(planes.data() + done / 2, high + done / 2, elements);
    const uint64_t from = std::max(at + done, first);
    const uint64_t to = std::min(at + done + elements.size(), end);
    if (from < to) {
      sink(from, elements.subspan(from - at - done, to - from));
    }
  }
}

void to_planes(std::span<std::byte> array) {
  const std::vector<std::byte> elements(array.begin(), array.end());
  split_words(elements, array.data(), array.data() + array.size() / 2);
}

void to_elements(std::span<std::byte> array) {
  const std::vector<std::byte> planes(array.begin(), array.end());
  join_words(planes.data(), planes.data() + planes.size() / 2, array);
}

}  // namespace tpu::driver
