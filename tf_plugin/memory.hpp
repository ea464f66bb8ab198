// Memory: what TensorFlow allocates on the cores. An address names a block; its contents are an
// array of the board's, which transfers and launches give it as a whole. A block takes no memory of
// the core before it has contents, and launches give their results the memory themselves: no result
// is copied. Addresses are not those of the HBM: a core's are 2^44 apart.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "abi/types.h"
#include "runtime/runtime.hpp"
#include "sync/mutex.hpp"

namespace tpu::tensorflow {

/// The table of a tuple: addresses of its members.
struct TupleTable {
  std::vector<uint64_t> members;
};

/// Bytes without a type, there when `ready` is; nobody writes them from then on. They go to the
/// core with the first use that says what they are.
struct Untyped {
  std::shared_ptr<const std::vector<std::byte>> bytes;
  driver::Event ready;
};

/// A result with dynamic sizes: `array` has their bounds, and the result is the first elements of
/// each dimension. `sizes` has an s32 for each, and none for the dimension that a replicated
/// program has in front.
struct Sized {
  pjrt::DeviceArrayPtr array;
  std::vector<pjrt::DeviceArrayPtr> sizes;
};

using Contents = std::variant<std::monostate, pjrt::DeviceArrayPtr, TupleTable, Untyped, Sized>;

/// All calls may come from any thread. An address that is not of allocate() is InvalidArgument.
class Memory {
 public:
  explicit Memory(const pjrt::Runtime& runtime) : runtime_(runtime) {}

  SE_DeviceMemoryBase allocate(int device, uint64_t bytes);
  void free(uint64_t address);
  /// All blocks lose their contents, and have the memory of the cores no more.
  void forget();

  int device_of(uint64_t address) const;
  void set(uint64_t address, Contents contents);
  Contents contents(uint64_t address) const;

  /// The contents as an array of this type. Bytes of another type and as many take it over by way
  /// of the host. FailedPrecondition when nothing has written the memory.
  pjrt::DeviceArrayPtr array(uint64_t address, driver::DType dtype, const driver::Shape& dims);
  /// Starts the copy of the contents, as an array of this type, to `out`.
  driver::Event read(uint64_t address, driver::DType dtype, const driver::Shape& dims,
                     std::span<std::byte> out);
  TupleTable table(uint64_t address) const;
  /// Throws, with both numbers, when fewer bytes have been written there.
  void check_readable(uint64_t address, uint64_t bytes) const;

  /// Of what is allocated on a core.
  struct Use {
    int64_t blocks = 0, largest = 0;
  };
  Use use(int device) const;

 private:
  struct Block {
    int device = 0;
    uint64_t bytes = 0;
    Contents contents;
    bool forgotten = false;  ///< since something was written there
  };

  const Block& find(uint64_t address) const TPU_REQUIRES(mutex_);
  Block block(uint64_t address) const;
  void take_over(uint64_t address, const Contents& old, pjrt::DeviceArrayPtr typed);
  /// Throws what is wrong with the memory, which has no array. `use`: behind "is read".
  [[noreturn]] void fail_without_array(uint64_t address, const Block& block,
                                       const std::string& use) const;

  const pjrt::Runtime& runtime_;
  mutable base::Mutex mutex_;  // a leaf lock
  std::map<uint64_t, Block> blocks_ TPU_GUARDED_BY(mutex_);
  std::map<int, uint64_t> next_ TPU_GUARDED_BY(mutex_);  // by device, from its base
};

inline uint64_t address_of(const SE_DeviceMemoryBase& memory) {
  return reinterpret_cast<uint64_t>(memory.opaque);
}

}  // namespace tpu::tensorflow
