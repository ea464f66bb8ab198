// Addresses in HBM that a counted loop moves on: a kernel of its body reads and writes slices of
// stacked arrays where they are. A placement names such an address by a number, which is in the
// register field of an operand until its command is appended; then it is a register of the
// sequencer (emit/command_sink.hpp). The same in the slot register is a table of slots, for
// arguments that the iterations read one after the other.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel/argument_stacks.hpp"

namespace tpu::compiler {

// Bytes: `stride` times the counter, which counts from 0 to `trips` - 1.
struct MovingAddress {
  int64_t counter_smem = -1;  // where the sequencer keeps it
  int64_t stride = 0, trips = 0;

  bool operator==(const MovingAddress&) const = default;
};

// Entry i: the slot in iteration i, from that of the operand on. The loop is entered from main
// alone.
struct SlotTable {
  int64_t counter_smem = -1;
  std::vector<int> slots;
  int64_t smem = -1;  // where the sequencer puts the table in front of the loop
};

class MovingAddresses {
 public:
  static constexpr int kFirst = 32;  // behind the registers; 0: none

  // Their numbers; 0: there are too many.
  uint8_t add(const MovingAddress& address);
  uint8_t add_table(int64_t counter_smem, const std::vector<int>& slots);

  const MovingAddress& at(uint8_t number) const { return all_.at(number - kFirst); }
  const SlotTable& table(uint8_t number) const { return tables_.at(number - kFirst); }
  const std::vector<SlotTable>& tables() const { return tables_; }
  // True if no slot is in both of two homes. A home is a slot, or a table (0: none) and the lowest
  // slot of it: all of its slots count, those of other iterations, too.
  bool are_apart(int slot, uint8_t table, int other_slot, uint8_t other_table) const;

 private:
  std::vector<int> slots_of(int slot, uint8_t table) const;

  std::vector<MovingAddress> all_;
  std::vector<SlotTable> tables_;
  int64_t next_table_ = kSlotTablesBegin;
};

}  // namespace tpu::compiler
