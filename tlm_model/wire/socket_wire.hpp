// Wires over connections, one to each other process.
#pragma once

#include <memory>
#include <vector>

#include "socket/descriptor.hpp"
#include "socket/pipe.hpp"
#include "wire/wire.hpp"

namespace tpu::model {

// `pipes`: by rank, null at the own one.
std::unique_ptr<Wire> make_pipe_wire(uint32_t rank, std::vector<std::shared_ptr<base::Pipe>> pipes);
// `sockets`: connected stream sockets by rank, none at the own one.
std::unique_ptr<Wire> make_socket_wire(uint32_t rank, std::vector<base::Descriptor> sockets);

}  // namespace tpu::model
