// A board over the null transport whose knobs a test can turn.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tpu/tpu.hpp"
#include "transport/null/null_transport.hpp"

namespace tpu::driver::test {

/// Opens a board over a `Null`, NullTransport or a class made from it. `null` points to the
/// transport until the board is closed; `prepare` sees it before anything is asked of it.
template <typename Null>
Board open_null(
    Null*& null, OpenOptions options = {},
    const std::function<void(Null&)>& prepare = [](Null&) {}) {
  options.factory = [&](const TransportRequest& request, HostMemory& memory) {
    auto made = std::make_unique<Null>(request, memory);
    null = made.get();
    prepare(*made);
    return made;
  };
  options.firmware.assign(100, std::byte{7});
  return Board::open(options);
}

struct NullBoard {
  explicit NullBoard(
      OpenOptions options = {},
      const std::function<void(NullTransport&)>& prepare = [](NullTransport&) {})
      : board(open_null(null, std::move(options), prepare)) {}

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
