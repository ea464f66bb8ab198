// Wires over connected stream sockets, one to each other process.
#pragma once

#include <memory>
#include <vector>

#include "socket/descriptor.hpp"
#include "wire/wire.hpp"

namespace tpu::model {

// `sockets`: by rank, none at the own one.
std::unique_ptr<Wire> make_socket_wire(uint32_t rank, std::vector<base::Descriptor> sockets);

}  // namespace tpu::model
