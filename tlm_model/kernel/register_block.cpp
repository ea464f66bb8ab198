// Registers by their table.
#include "kernel/register_block.hpp"

namespace tpu::model {

RegisterBlock::RegisterBlock(const RegisterMap& map) : map_(map) {
  for (const spec::RegisterRow& row : map_.rows) {
    first_.push_back(static_cast<uint32_t>(own_.size()));
    own_.insert(own_.end(), row.count, row.reset);
  }
  for (uint32_t& word : own_) {
    places_.push_back(&word);
  }
}

bool RegisterBlock::find(uint32_t offset, Found& found) const {
  if (offset >= spec::kRegisterBlockBytes || offset % 4 != 0) {
    return false;
  }
  found.row = (*map_.index)[offset / 4];
  if (found.row == spec::kNoRegister) {
    return false;
  }
  const spec::RegisterRow& row = map_.rows[found.row];
  found.index = row.count == 1 ? 0 : (offset - row.offset) / row.stride;
  return true;
}

bool RegisterBlock::read(uint32_t offset, uint32_t& value) {
  Found at{};
  if (!find(offset, at) || !map_.rows[at.row].readable()) {
    return false;
  }
  const RegisterHandlers& handlers = map_.handlers[at.row];
  value = handlers.value != nullptr ? handlers.value(*this, at.index)
                                    : *places_[first_[at.row] + at.index];
  if (handlers.read != nullptr) {
    handlers.read(*this, at.index, value);
  }
  return true;
}

bool RegisterBlock::peek(uint32_t offset, uint32_t& value) const {
  Found at{};
  if (!find(offset, at) || !map_.rows[at.row].readable()) {
    return false;
  }
  const RegisterHandlers& handlers = map_.handlers[at.row];
  const auto compute = handlers.peek != nullptr ? handlers.peek : handlers.value;
  value = compute != nullptr ? compute(*this, at.index) : *places_[first_[at.row] + at.index];
  return true;
}

bool RegisterBlock::write(uint32_t offset, uint32_t value) {
  Found at{};
  if (!find(offset, at) || !map_.rows[at.row].writable()) {
    return false;
  }
  const spec::RegisterRow& row = map_.rows[at.row];
  const RegisterHandlers& handlers = map_.handlers[at.row];
  if (handlers.before != nullptr && !handlers.before(*this, at.index, value)) {
    return true;
  }
  uint32_t& place = *places_[first_[at.row] + at.index];
  if (handlers.value == nullptr &&
      (row.access != spec::RegisterAccess::kWriteOnly || !own(&place))) {
    put(place, offset,
        row.access == spec::RegisterAccess::kClears ? place & ~(value & row.mask)
                                                    : (place & ~row.mask) | (value & row.mask));
  }
  if (handlers.write != nullptr) {
    handlers.write(*this, at.index, value);
  }
  return true;
}

bool RegisterBlock::untimed(uint32_t offset, bool write) const {
  Found at{};
  return find(offset, at) &&
         (write ? map_.rows[at.row].untimed_write : map_.rows[at.row].untimed_read) &&
         untimed_now(at.index);
}

void RegisterBlock::put(uint32_t& place, uint32_t offset, uint32_t value) {
  place = value;
  stored(offset, value);
}

void RegisterBlock::set_reg(uint32_t offset, uint32_t value, uint32_t index) {
  const spec::RegisterRow& row = map_.rows[(*map_.index)[offset / 4]];
  put(cell(offset, index), offset + index * row.stride, value);
}

void RegisterBlock::reset_registers() {
  for (size_t row = 0; row < map_.rows.size(); ++row) {
    const spec::RegisterRow& info = map_.rows[row];
    for (uint32_t i = 0; i < info.count && !info.constant; ++i) {
      uint32_t* const place = places_[first_[row] + i];
      if (own(place) && *place != info.reset) {
        put(*place, info.offset + i * info.stride, info.reset);
      }
    }
  }
}

void RegisterBlock::visit_registers(spec::Archive& archive) {
  for (size_t row = 0; row < map_.rows.size(); ++row) {
    const spec::RegisterRow& info = map_.rows[row];
    const bool saved = !info.constant && info.readable() && map_.handlers[row].value == nullptr;
    for (uint32_t i = 0; i < info.count && saved; ++i) {
      uint32_t* const place = places_[first_[row] + i];
      if (own(place)) {
        archive(*place);
      }
    }
  }
}

void RegisterBlock::bind(uint32_t offset, uint32_t& variable) {
  places_[first_[(*map_.index)[offset / 4]]] = &variable;
}

void RegisterBlock::share(RegisterBlock& other) {
  for (size_t row = 0; row < map_.rows.size(); ++row) {
    const spec::RegisterRow& info = map_.rows[row];
    for (uint32_t i = 0; i < info.count; ++i) {
      Found at{};
      if (other.find(info.offset + i * info.stride, at)) {
        places_[first_[row] + i] = other.places_[other.first_[at.row] + at.index];
      }
    }
  }
}

}  // namespace tpu::model
