// Numbers of items in a listing whose items have other places.
#pragma once

#include <cstddef>
#include <variant>
#include <vector>

#include "program/listing.hpp"

namespace tpu::compiler {

// `place` has the new place of each item: commands and waits refer to that.
inline void refer_to_places(std::vector<Item>& items, const std::vector<int>& place) {
  for (Item& item : items) {
    if (auto* command = std::get_if<Command>(&item)) {
      for (int& answered : command->implies) {
        answered = place[static_cast<size_t>(answered)];
      }
    } else if (auto* control = std::get_if<Control>(&item);
               control != nullptr && control->kind == Control::Kind::kWait) {
      control->item = place[static_cast<size_t>(control->item)];
    }
  }
}

}  // namespace tpu::compiler
