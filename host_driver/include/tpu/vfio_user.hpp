// The chips of a board as PCI functions for other programs, by the vfio-user protocol: QEMU's
// `vfio-user-pci` gives them to a guest.
#pragma once

#include <cstdint>
#include <string>

#include "tpu/board.hpp"

namespace tpu::driver {

/// Of serve_vfio_user().
struct VfioUserOptions {
  std::string folder;  ///< has the sockets chip0.sock, chip1.sock, ..; made if it is not there
  OpenOptions board;   ///< of the board, which begins anew with each call
  uint16_t vendor = 0x1ae0;  ///< of the functions
  uint16_t device = 0x0027;  ///< the same
};

/// Until SIGINT or SIGTERM. No other thread runs. A process can do this once. Throws Error.
void serve_vfio_user(const VfioUserOptions& options);

}  // namespace tpu::driver
