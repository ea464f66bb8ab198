// Which functions of a block serve its registers, as the tables of spec/regs ask for them. A map is
// made at compile time; a handler that is missing or not asked for does not compile:
//
//   RegisterMap Infeed::registers() {
//     static constexpr auto kMap = make_register_map(
//         spec::infeed::kTable, {on_write<&Infeed::push>(spec::infeed::kPush), ...});
//     return kMap.view();
//   }
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>

#include "tpu/spec/register_table.hpp"

namespace tpu::model {

class RegisterBlock;

// What a block does itself for one register; `index` counts in an array of registers.
struct RegisterHandlers {
  uint32_t (*value)(const RegisterBlock&, uint32_t index) = nullptr;
  uint32_t (*peek)(const RegisterBlock&, uint32_t index) = nullptr;
  void (*read)(RegisterBlock&, uint32_t index, uint32_t value) = nullptr;
  bool (*before)(RegisterBlock&, uint32_t index, uint32_t value) = nullptr;
  void (*write)(RegisterBlock&, uint32_t index, uint32_t value) = nullptr;

  constexpr uint8_t kinds() const {
    return static_cast<uint8_t>((value != nullptr ? spec::kHandlesValue : 0) |
                                (peek != nullptr ? spec::kHandlesPeek : 0) |
                                (read != nullptr ? spec::kHandlesRead : 0) |
                                (before != nullptr ? spec::kHandlesBefore : 0) |
                                (write != nullptr ? spec::kHandlesWrite : 0));
  }
};

struct RegisterMap {
  std::span<const spec::RegisterRow> rows;
  std::span<const RegisterHandlers> handlers;  // by row
  const spec::RegisterIndex* index;
};

// Handlers of the register at an offset.
struct RegisterEntry {
  uint32_t offset;
  RegisterHandlers handlers;
};

namespace register_detail {

template <class Block, class Result, class... Args>
Block* class_of(Result (Block::*)(Args...));
template <class Block, class Result, class... Args>
Block* class_of(Result (Block::*)(Args...) const);
template <auto kFunction>
using ClassOf = std::remove_pointer_t<decltype(class_of(kFunction))>;

// A function takes (index, value), (value) or nothing; the value of a register (index) or nothing.
template <auto kFunction, class Self>
uint32_t ask(const RegisterBlock& block, uint32_t index) {
  const auto& self = static_cast<const Self&>(block);
  if constexpr (std::is_invocable_v<decltype(kFunction), const Self&, uint32_t>) {
    return (self.*kFunction)(index);
  } else {
    return (self.*kFunction)();
  }
}
template <auto kFunction, class Self, class Result>
Result tell(RegisterBlock& block, uint32_t index, uint32_t value) {
  auto& self = static_cast<Self&>(block);
  if constexpr (std::is_invocable_v<decltype(kFunction), Self&, uint32_t, uint32_t>) {
    return (self.*kFunction)(index, value);
  } else if constexpr (std::is_invocable_v<decltype(kFunction), Self&, uint32_t>) {
    return (self.*kFunction)(value);
  } else {
    return (self.*kFunction)();
  }
}

}  // namespace register_detail

// What is read, which nothing stores.
template <auto kFunction>
constexpr RegisterEntry on_value(uint32_t offset) {
  using Self = register_detail::ClassOf<kFunction>;
  return {offset, {.value = &register_detail::ask<kFunction, Self>}};
}
// What a debugger sees.
template <auto kFunction>
constexpr RegisterEntry on_peek(uint32_t offset) {
  using Self = register_detail::ClassOf<kFunction>;
  return {offset, {.peek = &register_detail::ask<kFunction, Self>}};
}
// The effect of a read; it gets the value that was read.
template <auto kFunction>
constexpr RegisterEntry on_read(uint32_t offset) {
  using Self = register_detail::ClassOf<kFunction>;
  return {offset, {.read = &register_detail::tell<kFunction, Self, void>}};
}
// In front of a write; false drops it.
template <auto kFunction>
constexpr RegisterEntry before_write(uint32_t offset) {
  using Self = register_detail::ClassOf<kFunction>;
  return {offset, {.before = &register_detail::tell<kFunction, Self, bool>}};
}
// The effect of a write, after the value is stored; it gets the value as it was written.
template <auto kFunction>
constexpr RegisterEntry on_write(uint32_t offset) {
  using Self = register_detail::ClassOf<kFunction>;
  return {offset, {.write = &register_detail::tell<kFunction, Self, void>}};
}

template <size_t kRows>
struct RegisterMapOf {
  const std::array<spec::RegisterRow, kRows>& table;
  spec::RegisterIndex index{};
  std::array<RegisterHandlers, kRows> handlers{};
  const char* wrong = nullptr;  // what does not fit the table, or null

  constexpr RegisterMap view() const { return {table, handlers, &index}; }
};

// Without the check: `wrong` of the result says what does not fit.
template <size_t kRows>
constexpr RegisterMapOf<kRows> match_registers(const std::array<spec::RegisterRow, kRows>& table,
                                               std::initializer_list<RegisterEntry> entries) {
  RegisterMapOf<kRows> map{.table = table, .index = spec::register_index(table)};
  const auto add = [&map](auto& to, auto from) {
    if (from != nullptr) {
      map.wrong = to != nullptr ? "a register has two handlers of one kind" : map.wrong;
      to = from;
    }
  };
  for (const RegisterEntry& entry : entries) {
    const uint8_t row = map.index[entry.offset / 4];
    if (row == spec::kNoRegister || table[row].offset != entry.offset) {
      map.wrong = "a handler is for an offset that is not in the table";
      continue;
    }
    RegisterHandlers& to = map.handlers[row];
    add(to.value, entry.handlers.value);
    add(to.peek, entry.handlers.peek);
    add(to.read, entry.handlers.read);
    add(to.before, entry.handlers.before);
    add(to.write, entry.handlers.write);
  }
  for (size_t row = 0; row < kRows; ++row) {
    if ((table[row].handlers & ~map.handlers[row].kinds()) != 0) {
      map.wrong = "a register lacks a handler that its table asks for";
    } else if (table[row].handlers != map.handlers[row].kinds()) {
      map.wrong = "a register has a handler that its table does not ask for";
    }
  }
  return map;
}

template <size_t kRows>
consteval RegisterMapOf<kRows> make_register_map(const std::array<spec::RegisterRow, kRows>& table,
                                                 std::initializer_list<RegisterEntry> entries) {
  const RegisterMapOf<kRows> map = match_registers(table, entries);
  if (map.wrong != nullptr) {
    throw map.wrong;  // ends the compilation here: the handlers do not fit spec/regs
  }
  return map;
}

}  // namespace tpu::model
