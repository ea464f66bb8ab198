// Where examples come from: numbered from 0 on, each readable on its own by any number of threads.
// Order, batches and conversion stand above (batch_pipeline.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "tpu/types.hpp"

namespace tpu::input {

/// One feature of one example as it is stored.
struct Value {
  driver::DType type = driver::DType::kU8;
  std::span<const std::byte> bytes;  ///< dense, row-major
};

/// An example that cannot be used; the text says why, not where: whoever asked for it adds
/// Source::place().
class BadExample : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Reads for one thread.
class Reader {
 public:
  virtual ~Reader() = default;

  /// Fills one value for each feature, valid until the next call. Returns the bytes that the
  /// example takes in its file. Throws BadExample, and driver::Error when a file cannot be read.
  virtual uint64_t read(uint64_t example, std::span<Value> values) = 0;
};

class Source {
 public:
  virtual ~Source() = default;

  virtual uint64_t examples() const = 0;
  /// Must not outlive the source.
  virtual std::unique_ptr<Reader> reader() const = 0;
  /// File and number, for errors: "train-003.tfrecord, record 17".
  virtual std::string place(uint64_t example) const = 0;
  /// What tells these data from others when a run is resumed: counts, sizes, types.
  virtual std::string identity() const = 0;
  /// Throws driver::Error when a file was changed since it was opened: what was read since the last
  /// call counts only when this has returned.
  virtual void check() const {}
  /// A hint: these examples are read soon, in about this order.
  virtual void expect(uint64_t first, uint64_t count) const;
};

inline void Source::expect(uint64_t /*first*/, uint64_t /*count*/) const {}

}  // namespace tpu::input
