// Bodies of frames: bytes that one function names the fields of, for both directions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "file/archive.hpp"

namespace tpu::model {

class BodyWriter : public spec::Archive {
 public:
  BodyWriter() : Archive(false) {}
  void section(const std::string& /*name*/) override {}
  using Archive::bytes;
  void bytes(std::span<std::byte> data) override {
    bytes_.insert(bytes_.end(), data.begin(), data.end());
  }
  uint64_t left() const override { return 0; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Throws spec::ArchiveError for bytes that are missing.
class BodyReader : public spec::Archive {
 public:
  explicit BodyReader(std::span<const std::byte> from) : Archive(true), rest_(from) {}
  void section(const std::string& /*name*/) override {}
  using Archive::bytes;
  void bytes(std::span<std::byte> data) override {
    need(data.size() <= rest_.size(), "bytes are missing");
    std::copy_n(rest_.begin(), data.size(), data.begin());
    rest_ = rest_.subspan(data.size());
  }
  uint64_t left() const override { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace tpu::model
