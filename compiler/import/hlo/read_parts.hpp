// Readers of the messages that an HloModuleProto is made of. Each reads all of `message`. Private
// to the import.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "import/hlo/hlo_module.hpp"
#include "import/hlo/message.hpp"

namespace tpu::compiler::hlo {

// Fields 1 .. N, which are numbers.
template <size_t N>
std::array<int64_t, N> read_numbers(Message m) {
  std::array<int64_t, N> numbers{};
  while (m.next()) {
    if (m.field() <= N) {
      numbers[m.field() - 1] = m.integer();
    }
  }
  return numbers;
}

Shape read_shape(Message message);
Literal read_literal(Message message);
Sharding read_sharding(Message message);
Attributes read_attributes(Message message);
// Field 1, a list: ReplicaGroup, ParameterReplication.
Ints read_numbers(Message message);
// The groups of devices of a collective, in whatever form it has them.
std::vector<Ints> groups_of(const Instruction& instruction);
// One instruction, without what depends on others of its computation.
Instruction read_instruction(Message message);

}  // namespace tpu::compiler::hlo
