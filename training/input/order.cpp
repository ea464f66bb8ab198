#include "input/order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "check/refuse.hpp"
#include "file/crc32c.hpp"
#include "numbers/random.hpp"

namespace tpu::input {

using driver::refuse;

Order::Order(OrderOptions options, uint64_t examples) : options_(std::move(options)) {
  if (examples > std::numeric_limits<uint32_t>::max()) {
    refuse(fmt::format("{} examples; at most 2^32 - 1 can be put in an order", examples));
  }
  if (options_.shards == 0 || options_.shard >= options_.shards) {
    refuse(fmt::format("shard {} of {}: shards count from 0, up to one less than there are",
                       options_.shard, options_.shards));
  }
  if (options_.examples) {
    for (const uint32_t example : *options_.examples) {
      if (example >= examples) {
        refuse(fmt::format("example {} is selected, but the input has only {}, numbered from 0",
                           example, examples));
      }
    }
  }
  ascending_ =
      !options_.examples || std::is_sorted(options_.examples->begin(), options_.examples->end());
  used_ = options_.examples ? options_.examples->size() : examples;
  count_ = used_ / options_.shards + (options_.shard < used_ % options_.shards ? 1 : 0);
}

uint32_t Order::stored(uint64_t place) const {
  const uint64_t at = options_.shard + place * options_.shards;
  return options_.examples ? (*options_.examples)[at] : static_cast<uint32_t>(at);
}

void Order::begin(uint32_t epoch) {
  epoch_ = epoch;
  given_ = 0;
  entered_ = 0;
  buffer_.clear();
  if (options_.shuffle == kShuffleAll) {
    buffer_ = training::permutation(
        training::RandomStream(options_.seed, training::RandomPurpose::kEpoch, epoch), count_);
  }
}

uint32_t Order::next() {
  if (options_.shuffle == kShuffleAll) {
    return stored(buffer_[given_++]);
  }
  if (options_.shuffle == 0) {
    ++entered_;
    return stored(given_++);
  }
  return stored(from_buffer());
}

uint32_t Order::from_buffer() {
  while (entered_ < count_ && buffer_.size() < options_.shuffle) {
    buffer_.push_back(static_cast<uint32_t>(entered_++));
  }
  const training::RandomStream random(options_.seed, training::RandomPurpose::kBuffer, epoch_);
  const size_t slot = random.below(given_++, buffer_.size());
  const uint32_t place = std::exchange(buffer_[slot], buffer_.back());
  buffer_.pop_back();
  return place;
}

void Order::skip(uint64_t count) {
  if (options_.shuffle == 0 || options_.shuffle == kShuffleAll) {
    given_ += count;
    entered_ += count;
    return;
  }
  for (uint64_t i = 0; i < count; ++i) {
    from_buffer();
  }
}

std::optional<uint64_t> Order::entered() const {
  if (options_.shuffle == kShuffleAll || !ascending_) {
    return std::nullopt;
  }
  return entered_ == 0 ? 0 : stored(entered_ - 1) + uint64_t{1};
}

std::string Order::text() const {
  std::string text = fmt::format("seed {}, ", options_.seed);
  text += options_.shuffle == kShuffleAll ? "shuffled"
          : options_.shuffle == 0         ? "as stored"
                                          : fmt::format("shuffled by {}", options_.shuffle);
  text += fmt::format(", shard {} of {}", options_.shard, options_.shards);
  if (options_.examples) {
    const auto bytes = std::as_bytes(std::span(*options_.examples));
    text += fmt::format(", {} chosen ({:08x})", options_.examples->size(), spec::crc32c(bytes));
  }
  return text;
}

}  // namespace tpu::input
