// In which order an epoch takes the examples: sharded, then shuffled. A function of the options
// and the epoch's number alone, whatever threads do; so a position is two numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tpu::input {

/// OrderOptions::shuffle: every order is as likely.
inline constexpr uint64_t kShuffleAll = UINT64_MAX;

struct OrderOptions {
  uint64_t seed = 0;
  /// 0: as stored; n: a buffer of n examples, of which a random one leaves whenever one enters (as
  /// tf.data's shuffle); kShuffleAll. Each epoch has an order of its own.
  uint64_t shuffle = 0;
  /// This host takes the examples `shard`, `shard + shards`, ...
  uint32_t shard = 0;
  uint32_t shards = 1;
  /// The examples that are used at all, such as one side of a split; none: all.
  std::optional<std::vector<uint32_t>> examples = {};
};

class Order {
 public:
  /// Of a source with that many examples. Throws driver::Error InvalidArgument for options without
  /// a meaning.
  Order(OrderOptions options, uint64_t examples);

  /// Examples of this shard an epoch; and of the smallest shard.
  uint64_t count() const { return count_; }
  uint64_t smallest_shard() const { return used_ / options_.shards; }
  /// Starts an epoch.
  void begin(uint32_t epoch);
  /// The next example; at most count() calls an epoch.
  uint32_t next();
  /// As that many calls of next().
  void skip(uint64_t count);

  /// Examples 0 .. entered() of the source have been given or wait in the buffer; empty where the
  /// order is not near that of the source.
  std::optional<uint64_t> entered() const;
  /// What another run must have alike to continue this one.
  std::string text() const;

 private:
  uint32_t stored(uint64_t place) const;
  uint32_t from_buffer();

  OrderOptions options_;
  bool ascending_ = true;  // as stored, but for the shuffle
  uint64_t used_;          // examples of all shards
  uint64_t count_;         // of this one
  uint32_t epoch_ = 0;
  uint64_t given_ = 0;
  uint64_t entered_ = 0;
  std::vector<uint32_t> buffer_;  // places; with kShuffleAll the whole order
};

}  // namespace tpu::input
