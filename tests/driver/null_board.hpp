// A board over the null transport whose knobs a test can turn.
#pragma once

#include <functional>
#include <memory>

#include "tpu/tpu.hpp"
#include "transport/null/null_transport.hpp"

namespace tpu::driver::test {

struct NullBoard {
  explicit NullBoard(
      OpenOptions options = {},
      const std::function<void(NullTransport&)>& prepare = [](NullTransport&) {}) {
    options.factory = [&](const TransportRequest& request, HostMemory& memory) {
      auto made = std::make_unique<NullTransport>(request, memory);
      null = made.get();
      prepare(*made);
      return made;
    };
    options.firmware.assign(100, std::byte{7});
    board = Board::open(options);
  }

  NullTransport* null = nullptr;  ///< until the board is closed
  Board board;
};

inline std::vector<uint64_t> hbm_used(const Board& board) {
  std::vector<uint64_t> used;
  for (const DeviceInfo& device : board.devices()) {
    used.push_back(device.hbm_used);
  }
  return used;
}

}  // namespace tpu::driver::test
