// Damages the numbers of a snapshot, whose checksums are made right again: as a file that another
// program has made, or somebody with a reason. The same seed gives the same changes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "file/crc32c.hpp"

namespace tpu::test {

class SnapshotParts {
 public:
  struct Section {
    std::string name;
    std::vector<std::byte> bytes;
  };

  explicit SnapshotParts(std::span<const std::byte> file) {
    head_.assign(file.begin(), file.begin() + kHeadBytes);
    tail_.assign(file.end() - kTailBytes, file.end());
    size_t at = number<uint64_t>(tail_, 0);
    const auto take = [&]<typename T>(T /*of this type*/) {
      const T value = number<T>(file, at);
      at += sizeof(T);
      return value;
    };
    for (uint64_t left = take(uint64_t{}); left > 0; --left) {
      Section section;
      const uint64_t length = take(uint64_t{});
      section.name.assign(reinterpret_cast<const char*>(file.data()) + at, length);
      at += length;
      const uint64_t offset = take(uint64_t{});
      const uint64_t bytes = take(uint64_t{});
      take(uint32_t{});
      const auto all = file.subspan(offset, bytes);
      section.bytes.assign(all.begin(), all.end());
      sections.push_back(std::move(section));
    }
  }

  std::vector<std::byte> file() const {
    std::vector<std::byte> out = head_;
    std::vector<std::byte> index;
    put(index, sections.size());
    for (const Section& section : sections) {
      put(index, section.name.size());
      const auto name = std::as_bytes(std::span(section.name));
      index.insert(index.end(), name.begin(), name.end());
      put(index, out.size());
      put(index, section.bytes.size());
      put(index, spec::crc32c(section.bytes));
      out.insert(out.end(), section.bytes.begin(), section.bytes.end());
    }
    std::vector<std::byte> tail = tail_;
    const uint64_t offset = out.size();
    const uint32_t crc = spec::crc32c(index);
    std::memcpy(tail.data(), &offset, sizeof offset);
    std::memcpy(tail.data() + sizeof offset, &crc, sizeof crc);
    out.insert(out.end(), index.begin(), index.end());
    out.insert(out.end(), tail.begin(), tail.end());
    return out;
  }

  Section& section(const std::string& name) {
    for (Section& each : sections) {
      if (each.name == name) {
        return each;
      }
    }
    throw std::out_of_range("no section " + name);
  }

  std::vector<Section> sections;

 private:
  static constexpr int kHeadBytes = 16;
  static constexpr int kTailBytes = 24;

  template <typename T>
  static T number(std::span<const std::byte> bytes, size_t at) {
    T value;
    std::memcpy(&value, bytes.subspan(at, sizeof value).data(), sizeof value);
    return value;
  }
  template <typename T>
  static void put(std::vector<std::byte>& to, T value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    to.insert(to.end(), bytes.begin(), bytes.end());
  }

  std::vector<std::byte> head_, tail_;
};

class NumberMutator {
 public:
  explicit NumberMutator(uint32_t seed) : random_(seed) {}

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  // A number of 1 to 8 bytes becomes an edge of its type, of a small table, or a neighbour.
  void change(std::vector<std::byte>& bytes) {
    const size_t size = size_t{1} << below(4);
    if (bytes.size() < size) {
      return;
    }
    const size_t at = below(bytes.size() - size + 1);
    uint64_t old = 0;
    std::memcpy(&old, bytes.data() + at, size);
    const uint64_t values[] = {0,
                               1,
                               2,
                               8,
                               64,
                               100,
                               UINT64_MAX,
                               old + 1,
                               old - 1,
                               old * 2,
                               uint64_t{1} << 20,
                               INT32_MAX,
                               uint64_t{1} << 31,
                               uint64_t{1} << 34,
                               uint64_t{1} << 40,
                               INT64_MAX,
                               uint64_t{1} << 63};
    const uint64_t value = values[below(std::size(values))];
    std::memcpy(bytes.data() + at, &value, size);
  }

 private:
  std::mt19937 random_;
};

}  // namespace tpu::test
