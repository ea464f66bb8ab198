// Wires in memory that all processes of a pod map: a ring of bytes for each ordered pair. A process
// that waits sleeps on its bell, a futex in that memory; it looks a few times before, and no more,
// since the processes of a pod are often more than the host has processors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "wire/wire.hpp"

namespace tpu::model {

// `memory`: spec::pod_memory_bytes() of it, all zeros at first; outlives the wire. Throws
// std::invalid_argument when it is too small.
std::unique_ptr<Wire> make_shm_wire(uint32_t rank, uint32_t ranks, std::span<std::byte> memory);

}  // namespace tpu::model
