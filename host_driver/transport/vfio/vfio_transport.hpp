// A board whose chips are PCI functions, as a transport: registers by BARs, memory by DMA mappings,
// interrupts by eventfds, as for hardware. Simulated time passes by itself; run() waits.
#pragma once

#include <memory>
#include <string_view>

#include "src/memory/host_arena.hpp"
#include "tpu/transport.hpp"
#include "transport/vfio/pci_machine.hpp"

namespace tpu::driver {

/// Whether OpenOptions::connect names PCI functions.
bool is_vfio_address(std::string_view connect);
/// Whether these need memory that another process maps.
bool is_vfio_user_address(std::string_view connect);

/// Throws Error: Unavailable, FailedPrecondition for functions of another board, InvalidArgument
/// for options that are of the process that has the board.
std::unique_ptr<Transport> make_vfio_transport(const OpenOptions& options,
                                               const TransportRequest& request, HostArena& arena);
/// The same of functions that are open.
std::unique_ptr<Transport> make_vfio_transport(std::unique_ptr<vfio::PciMachine> machine,
                                               const spec::BoardParams& params, HostArena& arena);

}  // namespace tpu::driver
