#include "input/cached_source.hpp"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "check/host_room.hpp"

namespace tpu::input {
namespace {

// The values of an example, one behind the other.
struct Kept {
  std::vector<std::byte> bytes;
  std::vector<Value> values;
  uint64_t stored_bytes = 0;
};

class CachedSource : public Source {
 public:
  explicit CachedSource(std::shared_ptr<const Source> source)
      : source_(std::move(source)), kept_(source_->examples()) {}
  ~CachedSource() override {
    for (const std::atomic<const Kept*>& kept : kept_) {
      delete kept.load();
    }
  }
  CachedSource(const CachedSource&) = delete;
  CachedSource& operator=(const CachedSource&) = delete;

  uint64_t examples() const override { return source_->examples(); }
  std::unique_ptr<Reader> reader() const override;
  std::string place(uint64_t example) const override { return source_->place(example); }
  std::string identity() const override { return source_->identity(); }
  void check() const override { source_->check(); }

  const Kept* kept(uint64_t example) const {
    return kept_[example].load(std::memory_order_acquire);
  }
  // Of two threads that read the same example the first is kept.
  const Kept* keep(uint64_t example, std::unique_ptr<const Kept> made) const {
    count_bytes(made->bytes.size());
    const Kept* there = nullptr;
    if (kept_[example].compare_exchange_strong(there, made.get())) {
      return made.release();
    }
    return there;
  }

 private:
  // Asks the host for its room now and then only: the answer stands in files.
  void count_bytes(uint64_t bytes) const {
    constexpr uint64_t kStep = uint64_t{64} << 20;
    const uint64_t before = bytes_.fetch_add(bytes);
    if (before / kStep != (before + bytes) / kStep) {
      driver::need_host_room(2 * kStep, "the cache of the input");
    }
  }

  const std::shared_ptr<const Source> source_;
  mutable std::vector<std::atomic<const Kept*>> kept_;
  mutable std::atomic<uint64_t> bytes_ = 0;
};

class CachedReader : public Reader {
 public:
  CachedReader(const CachedSource& source, std::unique_ptr<Reader> reader)
      : source_(source), reader_(std::move(reader)) {}

  uint64_t read(uint64_t example, std::span<Value> values) override {
    const Kept* kept = source_.kept(example);
    if (kept == nullptr) {
      auto made = std::make_unique<Kept>();
      made->stored_bytes = reader_->read(example, values);
      for (const Value& value : values) {
        made->bytes.insert(made->bytes.end(), value.bytes.begin(), value.bytes.end());
      }
      size_t at = 0;
      for (const Value& value : values) {
        made->values.push_back(
            {value.type, std::span(made->bytes).subspan(at, value.bytes.size())});
        at += value.bytes.size();
      }
      kept = source_.keep(example, std::move(made));
    }
    std::copy(kept->values.begin(), kept->values.end(), values.begin());
    return kept->stored_bytes;
  }

 private:
  const CachedSource& source_;
  std::unique_ptr<Reader> reader_;
};

std::unique_ptr<Reader> CachedSource::reader() const {
  return std::make_unique<CachedReader>(*this, source_->reader());
}

}  // namespace

std::shared_ptr<const Source> cached_source(std::shared_ptr<const Source> source) {
  return std::make_shared<CachedSource>(std::move(source));
}

}  // namespace tpu::input
