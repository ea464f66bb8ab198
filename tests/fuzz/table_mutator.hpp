// Damages the tables of an executable by their structure: entries swapped, doubled and taken out,
// fields set to the edges of their types and of the tables that they point into, shapes, slots,
// aliases and constants changed. Often the entries that refer to the changed one are made to
// follow, so that more than the first check of the reader is reached. The same seed gives the same
// changes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "exe/executable.hpp"
#include "tpu/spec/program_image.h"

namespace tpu::test {

class TableMutator {
 public:
  explicit TableMutator(uint32_t seed) : random_(seed) {}

  void change(exe::ExecutableT& exe) {
    for (size_t n = 1 + below(3); n > 0; --n) {
      change_once(exe);
    }
    if (below(8) != 0) {
      follow_header(exe);
    }
    if (below(2) == 0) {
      follow_slots(exe);
    }
  }

 private:
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  template <typename Table>
  auto& any(Table& table) {
    return table[below(table.size())];
  }

  // An edge of a type, of a table with `entries` entries, or a neighbour of the old value.
  template <typename Number>
  Number edge(Number old, size_t entries = 2) {
    const auto was = static_cast<uint64_t>(old);
    const uint64_t count = entries;
    const uint64_t values[] = {0,          1,
                               UINT64_MAX, was + 1,
                               was - 1,    was * 2,
                               was / 2,    count,
                               count - 1,  below(entries + 1),
                               INT32_MAX,  uint64_t{1} << 31,
                               UINT32_MAX, uint64_t{1} << 40,
                               INT64_MAX,  uint64_t{1} << 63};
    return static_cast<Number>(values[below(std::size(values))]);
  }

  template <typename Entry>
  void reorder(std::vector<Entry>& table) {
    if (table.empty()) {
      return;
    }
    const size_t at = below(table.size());
    switch (below(3)) {
      case 0:
        std::swap(table[at], any(table));
        break;
      case 1:
        table.erase(table.begin() + static_cast<ptrdiff_t>(at));
        break;
      default:
        double_entry(table, at);
        break;
    }
  }
  template <typename T>
  void double_entry(std::vector<std::unique_ptr<T>>& table, size_t at) {
    table.insert(table.begin() + static_cast<ptrdiff_t>(below(table.size() + 1)),
                 std::make_unique<T>(*table[at]));
  }
  template <typename T>
  void double_entry(std::vector<T>& table, size_t at) {
    table.push_back(table[at]);
  }

  void change_numbers(std::vector<int64_t>& list) {
    if (list.empty() || below(4) == 0) {
      below(2) == 0 ? list.push_back(edge<int64_t>(1)) : list.clear();
    } else if (below(4) == 0) {
      reorder(list);
    } else {
      int64_t& value = any(list);
      value = edge(value);
    }
  }

  void change_slot(exe::ExecutableT& exe) {
    if (exe.slots.empty()) {
      return;
    }
    exe::SlotT& slot = *any(exe.slots);
    switch (below(4)) {
      case 0:
        slot.kind = static_cast<exe::SlotKind>(below(6));
        break;
      case 1:
        slot.bytes = edge(slot.bytes);
        break;
      case 2:
        slot.index = edge(slot.index, exe.slots.size());
        break;
      default:
        reorder(exe.slots);
        break;
    }
  }

  void change_tensor(exe::ExecutableT& exe) {
    auto& tensors = below(2) == 0 ? exe.args : exe.results;
    if (tensors.empty()) {
      return;
    }
    exe::TensorT& t = *any(tensors);
    switch (below(9)) {
      case 0:
        t.elem = static_cast<exe::Elem>(below(13));
        break;
      case 1:
        change_numbers(t.global_dims);
        break;
      case 2:
        change_numbers(t.local_dims);
        break;
      case 3:
        change_numbers(t.offsets);
        break;
      case 4:
        t.replicated = !t.replicated;
        break;
      case 5:
        t.slot = edge(t.slot, exe.slots.size());
        break;
      case 6:
        t.donated_to = edge(t.donated_to, exe.results.size());
        break;
      case 7:
        change_owners(t);
        break;
      default:
        reorder(tensors);
        break;
    }
  }

  void change_owners(exe::TensorT& t) {
    uint64_t left = 1;
    for (const int64_t d : t.local_dims) {
      left *= static_cast<uint64_t>(d);
    }
    t.owned_elements.clear();
    t.owned_by.clear();
    for (size_t n = below(4); n > 0; --n) {
      const uint64_t run = below(4) == 0 ? edge(left) : left / n;
      t.owned_elements.push_back(run);
      t.owned_by.push_back(static_cast<uint8_t>(below(10)));
      left -= run;
    }
    t.terms.clear();
    for (size_t n = below(4) == 0 ? below(10) : 0; n > 0; --n) {
      t.terms.push_back(static_cast<uint8_t>(below(10)));
    }
  }

  // A shape of which everything agrees but the code.
  void change_shape(exe::ExecutableT& exe) {
    auto& tensors = below(2) == 0 ? exe.args : exe.results;
    if (tensors.empty()) {
      return;
    }
    exe::TensorT& t = *any(tensors);
    constexpr int64_t kDims[] = {0, 1, 2, 3, 7, 64, 128, 1000};
    t.local_dims.assign(below(6), 1);
    uint64_t bytes = 8;
    for (int64_t& d : t.local_dims) {
      d = kDims[below(std::size(kDims))];
      bytes *= static_cast<uint64_t>(d);
    }
    t.global_dims = t.local_dims;
    t.offsets.assign(t.local_dims.size() * std::min<size_t>(exe.partitions, 64), 0);
    t.replicated = true;
    t.owned_by.clear();
    t.owned_elements.clear();
    if (t.slot < exe.slots.size() && bytes < uint64_t{1} << 40) {
      exe.slots[t.slot]->bytes = bytes;
    }
  }

  // A donation of which both ends agree.
  void change_donation(exe::ExecutableT& exe) {
    if (exe.args.empty() || exe.results.empty()) {
      return;
    }
    const size_t r = below(exe.results.size());
    exe::TensorT& arg = *any(exe.args);
    arg.donated_to = static_cast<int32_t>(r);
    exe.results[r]->slot = arg.slot;
    std::erase_if(exe.slots, [&](const auto& slot) {  // the result's own, which nothing names now
      return below(2) == 0 && slot->kind == exe::SlotKind::result && slot->index == r;
    });
  }

  void change_constant(exe::ExecutableT& exe) {
    if (exe.constants.empty() || below(3) == 0) {
      exe.constants.push_back(std::make_unique<exe::ConstantT>());
      auto slot = std::make_unique<exe::SlotT>();
      slot->kind = exe::SlotKind::constant;
      slot->index = static_cast<uint32_t>(exe.constants.size() - 1);
      exe.slots.push_back(std::move(slot));
      return;
    }
    auto& data = any(exe.constants)->data;
    below(3) == 0 ? reorder(exe.constants) : data.resize(below(data.size() * 2 + 2));
  }

  void change_program(exe::ExecutableT& exe) {
    switch (below(7)) {
      case 0:
        exe.partitions =
            below(2) == 0 ? edge(exe.partitions, 8) : static_cast<uint32_t>(1 + below(8));
        break;
      case 1:
        exe.board_hash ^= uint64_t{1} << below(64);
        break;
      case 2:
        reorder(exe.ops);
        break;
      case 3:
        exe.name = std::string(below(3) * 100, '\xff');
        break;
      case 4:
        exe.hbm_bytes = edge(exe.hbm_bytes);
        exe.estimated_cycles = edge(exe.estimated_cycles);
        exe.matmul_flops = edge(exe.matmul_flops);
        break;
      case 5:
        exe.image.resize(below(exe.image.size() + 1));
        break;
      default:
        change_header(exe);
        break;
    }
  }

  void change_header(exe::ExecutableT& exe) {
    if (exe.image.size() < sizeof(tpu_program_image_header_t)) {
      return;
    }
    const size_t at = below(sizeof(tpu_program_image_header_t) / 4) * 4;
    uint32_t word = 0;
    std::memcpy(&word, exe.image.data() + at, sizeof word);
    word = edge(word, exe.image.size() / 8);
    std::memcpy(exe.image.data() + at, &word, sizeof word);
  }

  void change_once(exe::ExecutableT& exe) {
    switch (below(8)) {
      case 0:
      case 1:
        return change_slot(exe);
      case 2:
      case 3:
        return change_tensor(exe);
      case 4:
        return change_shape(exe);
      case 5:
        return change_donation(exe);
      case 6:
        return change_constant(exe);
      default:
        return change_program(exe);
    }
  }

  static void follow_header(exe::ExecutableT& exe) {
    if (exe.image.size() < sizeof(tpu_program_image_header_t)) {
      return;
    }
    tpu_program_image_header_t header;
    std::memcpy(&header, exe.image.data(), sizeof header);
    header.slots = static_cast<uint32_t>(exe.slots.size());
    header.cores = exe.partitions;
    header.board_hash = exe.board_hash;
    header.code_bytes = static_cast<uint32_t>(exe.image.size() - sizeof header);
    std::memcpy(exe.image.data(), &header, sizeof header);
  }

  static void follow_slots(exe::ExecutableT& exe) {
    for (size_t s = 0; s < exe.slots.size(); ++s) {
      const exe::SlotT& slot = *exe.slots[s];
      auto* tensors = slot.kind == exe::SlotKind::argument ? &exe.args
                      : slot.kind == exe::SlotKind::result ? &exe.results
                                                           : nullptr;
      if (tensors != nullptr && slot.index < tensors->size()) {
        exe::TensorT& t = *(*tensors)[slot.index];
        t.slot = static_cast<uint32_t>(s);
        t.offsets.resize(t.local_dims.size() * std::min<size_t>(exe.partitions, 64));
      }
    }
  }

  std::mt19937 random_;
};

}  // namespace tpu::test
