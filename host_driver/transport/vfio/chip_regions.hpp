// Regions of a function: its configuration space, the registers of its chip and the load windows.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tpu/transport.hpp"
#include "transport/vfio/config_space.hpp"
#include "transport/vfio/protocol.hpp"

namespace tpu::driver::vfio {

/// The board that the functions share.
struct FunctionBoard {
  Transport* transport = nullptr;
  bool quiet = false;  ///< nothing is in flight since the last run
  uint64_t until = 0;  ///< a client wants time to pass up to this cycle, although nothing is
  std::chrono::milliseconds reply_limit{10'000};  ///< for replies of clients
  std::function<void()> before_wait;      ///< a chip waits for its client, while the board runs
  std::function<void(bool)> behind_wait;  ///< true: frames have come that are not for it
};

class ChipRegions {
 public:
  using Bytes = std::span<const std::byte>;

  ChipRegions(FunctionBoard& board, int chip, PciId id);

  /// Payloads of commands, and those of their replies. Throw Rejected.
  static std::vector<std::byte> info(Bytes payload);
  std::vector<std::byte> read(Bytes payload);
  std::vector<std::byte> write(Bytes payload);
  std::vector<std::byte> write_many(Bytes payload);

  /// Loads that wait for more of them go to the chip; before reads, other writes and resets they do
  /// in any case. A guest's kernel makes an access of each word of an image.
  void settle();

  /// Of the function, its configuration space and its chip.
  void reset();
  ConfigSpace& config() { return config_; }

 private:
  static constexpr size_t kLoadBytes = 4096;  // joined, within a page: no memory ends in one

  void write_part(const RegionAccess& access, Bytes data);
  void load(uint64_t offset, Bytes data);
  void read_config(uint64_t offset, std::span<std::byte> to);
  void read_registers(uint64_t offset, std::span<std::byte> to);
  void write_config(uint64_t offset, Bytes data);
  void write_registers(uint64_t offset, Bytes data);

  FunctionBoard& board_;
  const int chip_;
  ConfigSpace config_;
  uint64_t load_offset_ = 0;      // of what waits for the load windows
  std::vector<std::byte> loads_;  // that lie one behind the other
};

}  // namespace tpu::driver::vfio
