// Base of every block of 32-bit registers. Access, masks, reset, snapshot and debug reads follow
// from the block's table (spec/regs); the block adds handlers for what a register does
// (register_map.hpp). Offsets are from the block's base and multiples of 4. Accesses take no time:
// the bus does.
#pragma once

#include <cstdint>
#include <vector>

#include "file/archive.hpp"
#include "kernel/register_map.hpp"

namespace tpu::model {

class RegisterBlock {
 public:
  static constexpr uint32_t kUndefined = 0xffffffffu;  // where a bus has no access fault

  explicit RegisterBlock(const RegisterMap& map);
  virtual ~RegisterBlock() = default;
  RegisterBlock(const RegisterBlock&) = delete;
  RegisterBlock& operator=(const RegisterBlock&) = delete;

  // False: there is no such register for this direction.
  bool read(uint32_t offset, uint32_t& value);
  bool write(uint32_t offset, uint32_t value);
  // As read(), without side effects: for debuggers.
  bool peek(uint32_t offset, uint32_t& value) const;
  // True: it makes no difference at which cycle between its neighbours the hart's access is
  // performed, since nothing but another access of the hart changes or uses the register.
  bool untimed(uint32_t offset, bool write) const;

 protected:
  // Reset values; registers that are bound to a variable of the block keep it.
  void reset_registers();
  // Of what is stored and not bound.
  void visit_registers(spec::Archive& archive);

  // What is stored. `set_reg` reports the change to stored(), `cell` does not.
  uint32_t reg(uint32_t offset, uint32_t index = 0) const { return *place(offset, index); }
  uint64_t wide_reg(uint32_t low, uint32_t high, uint32_t index = 0) const {
    return reg(low, index) | uint64_t{reg(high, index)} << 32;
  }
  void set_reg(uint32_t offset, uint32_t value, uint32_t index = 0);
  uint32_t& cell(uint32_t offset, uint32_t index = 0) { return *place(offset, index); }
  void set_wide(uint32_t low, uint32_t high, uint64_t value) {
    cell(low) = static_cast<uint32_t>(value);
    cell(high) = static_cast<uint32_t>(value >> 32);
  }
  // At construction: the register is a variable of the block.
  void bind(uint32_t offset, uint32_t& variable);
  // At construction: registers that the other block has at the same offset are the same.
  void share(RegisterBlock& other);

 private:
  // A register has another value.
  virtual void stored(uint32_t /*offset*/, uint32_t /*value*/) {}
  // Of a register that the table calls untimed.
  virtual bool untimed_now(uint32_t /*index*/) const { return true; }

  struct Found {
    uint32_t row;
    uint32_t index;  // in an array of registers
  };
  bool find(uint32_t offset, Found& found) const;
  uint32_t* place(uint32_t offset, uint32_t index) const {
    return places_[first_[(*map_.index)[offset / 4]] + index];
  }
  void put(uint32_t& place, uint32_t offset, uint32_t value);
  bool own(const uint32_t* place) const {
    return place >= own_.data() && place < own_.data() + own_.size();
  }

  const RegisterMap map_;
  std::vector<uint32_t> first_;    // by row: its first entry in places_
  std::vector<uint32_t> own_;      // a word for each register
  std::vector<uint32_t*> places_;  // where it is stored
};

}  // namespace tpu::model
