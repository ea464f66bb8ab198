// Block hostdma of a fake core (spec/regs/hostdma.toml). A transfer is done when finish() is
// called; posted writes are done at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fake/fake_surroundings.hpp"
#include "tpu/spec/hostdma_regs.h"
#include "tpu/spec/seq_regs.h"

namespace tpu::firmware {

class FakeDma {
 public:
  struct Context {
    uint64_t host = 0;
    uint64_t local = 0;
    uint64_t bytes = 0;
    uint32_t pattern = 0;
    uint32_t start = 0;
    uint32_t error = 0;
    uint32_t crc = 0;
    uint32_t entry_bad = 0;
    bool busy = false;
  };

  FakeDma(FakeSurroundings& around, uint32_t core) : around_(around), core_(core) {}

  void reset();
  /// False: no register, or one that may not be touched now.
  bool read(uint32_t offset, uint32_t& value) const;
  bool write(uint32_t offset, uint32_t value);
  /// Does the transfer of a context and sets its bit in DONE; false: the context is idle.
  bool finish(uint32_t context);

  std::array<Context, TPU_HOSTDMA_CONTEXTS> contexts{};
  /// Banks grow to what has been written.
  std::array<std::vector<std::byte>, TPU_SEQ_SLOT_BANKS> slot_banks;
  unsigned escapes = 0;  ///< local addresses outside of the memory that they name

 private:
  void start(Context& context, uint32_t value);
  uint32_t transfer(Context& context);
  uint32_t fill(const Context& context);
  uint32_t copy_between_cores(const Context& context);
  uint32_t take_from_host(Context& context);
  uint32_t send_to_host(const Context& context);
  void put_local(const Context& context, std::span<const std::byte> data);
  void take_local(const Context& context, std::span<std::byte> data);
  uint32_t local_error(const Context& context);

  FakeSurroundings& around_;
  const uint32_t core_;
  uint32_t done_ = 0;
};

}  // namespace tpu::firmware
