#include "plan/moving_address.hpp"

#include <algorithm>
#include <limits>

namespace tpu::compiler {

namespace {

uint8_t number_of(size_t index) {
  const size_t number = index + MovingAddresses::kFirst;
  return number > std::numeric_limits<uint8_t>::max() ? 0 : static_cast<uint8_t>(number);
}

}  // namespace

uint8_t MovingAddresses::add(const MovingAddress& address) {
  const auto known = std::ranges::find(all_, address);
  const uint8_t number = number_of(static_cast<size_t>(known - all_.begin()));
  if (number == 0) {
    return 0;
  }
  if (known == all_.end()) {
    all_.push_back(address);
  }
  return number;
}

uint8_t MovingAddresses::add_table(int64_t counter_smem, const std::vector<int>& slots) {
  const auto known = std::ranges::find_if(tables_, [&](const SlotTable& t) {
    return t.counter_smem == counter_smem && t.slots == slots;
  });
  const uint8_t number = number_of(static_cast<size_t>(known - tables_.begin()));
  if (number != 0 && known == tables_.end()) {
    tables_.push_back({counter_smem, slots, next_table_});
    next_table_ += 4 * std::ssize(slots);
  }
  return number;
}

std::vector<int> MovingAddresses::slots_of(int slot, uint8_t number) const {
  std::vector<int> slots = number == 0 ? std::vector{0} : table(number).slots;
  for (int& each : slots) {
    each += slot;
  }
  return slots;
}

bool MovingAddresses::are_apart(int slot, uint8_t table, int other_slot,
                                uint8_t other_table) const {
  const std::vector<int> others = slots_of(other_slot, other_table);
  return std::ranges::none_of(slots_of(slot, table), [&](int each) {
    return std::ranges::find(others, each) != others.end();
  });
}

}  // namespace tpu::compiler
