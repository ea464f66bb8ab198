// For each exchange: how far up each of its commands may go, then the order.
#include "program/early_departures.hpp"

#include <algorithm>
#include <bitset>
#include <map>
#include <unordered_map>

#include "command/operands.hpp"
#include "command/vpu_footprint.hpp"
#include "program/item_places.hpp"

namespace tpu::compiler {

namespace {

using Registers = std::bitset<256>;

void add_address(const spec::Addr& address, Registers& registers) {
  registers.set(address.reg);
  registers.set(address.slot_reg);
}

void add_operands(const Listing&, const Command&, const spec::NopCommand&, Registers&) {}

void add_operands(const Listing& listing, const Command& command, const spec::VpuKernelCommand& c,
                  Registers& registers) {
  for (const spec::VpuInsn& insn : listing.programs[static_cast<size_t>(command.program)].code) {
    if (spec::is_vpu_memory_op(insn)) {
      add_address(spec::operand(c, command.accesses[insn.imm], insn).address, registers);
    }
  }
  for (const uint8_t scalar : c.scalar) {
    registers.set(scalar);
  }
}

template <typename C>
void add_operands(const Listing&, const Command&, const C& c, Registers& registers) {
  for (const spec::CommandOperand& operand : spec::operands(c)) {
    add_address(operand.address, registers);
  }
  if constexpr (requires { c.peer_reg; }) {
    registers.set(c.peer_reg);
  }
}

// That the command reads. x0, which all fields without one name, is not among them.
Registers registers_of(const Listing& listing, const Command& command) {
  Registers registers;
  for (const spec::Signal& signal : command.head().signal) {
    registers.set(signal.peer_reg);
  }
  std::visit([&](const auto& c) { add_operands(listing, command, c, registers); }, command.body);
  registers.reset(0);
  return registers;
}

// Items that a command passes at most: those behind which it would be sent are issued long before.
constexpr size_t kFarthest = 1 << 14;

// What a command of the listing uses, computed once.
struct Used {
  Registers registers;
  std::vector<MemRange> ranges;
};

// Items of an exchange that move together: a command, and the instructions in front of it.
struct Group {
  size_t begin = 0, end = 0;
  Registers reads, writes;
  std::vector<MemRange> ranges;
  bool grants = false;  // a credit, which has no use before the transfers
  size_t place = 0;     // in front of this item
};

class Departures {
 public:
  Departures(Listing& listing, const std::set<uint32_t>& exchanges)
      : listing_(listing), exchanges_(exchanges) {}

  void run() {
    for (size_t i = 0; i < listing_.items.size();) {
      const std::vector<Group> groups = groups_at(i);
      if (groups.empty()) {
        ++i;
        continue;
      }
      i = groups.back().end;
      raise(groups);
    }
    if (!raised_.empty()) {
      reorder();
    }
  }

 private:
  const Command* command_at(size_t i) const { return std::get_if<Command>(&listing_.items[i]); }
  const spec::ScalarInsn* insn_at(size_t i) const {
    return std::get_if<spec::ScalarInsn>(&listing_.items[i]);
  }

  static bool ends_piece(const spec::ScalarInsn& insn) {
    const auto op = static_cast<spec::ScalarOp>(insn.op);
    return op == spec::ScalarOp::kHalt || op == spec::ScalarOp::kHcall ||
           op == spec::ScalarOp::kSwait || op == spec::ScalarOp::kSsignal;
  }

  // A credit, a transfer, or the copy to the core itself, of an exchange that departs early.
  bool departs(const Command& command) const {
    return exchanges_.contains(command.head().op_id) &&
           (command.queue() == spec::Queue::kDmaRemote ||
            std::holds_alternative<spec::DmaCommand>(command.body));
  }

  // What departs from item `i` on, without other commands between.
  std::vector<Group> groups_at(size_t i) const {
    std::vector<Group> groups;
    for (size_t begin = i; i < listing_.items.size(); ++i) {
      const Command* command = command_at(i);
      if (command == nullptr) {
        const spec::ScalarInsn* insn = insn_at(i);
        if (insn == nullptr || ends_piece(*insn)) {
          break;
        }
        continue;
      }
      if (!departs(*command) ||
          (!groups.empty() &&
           command->head().op_id != command_at(groups.back().end - 1)->head().op_id)) {
        break;
      }
      groups.push_back(group(begin, i));
      begin = i + 1;
    }
    return groups;
  }

  Group group(size_t begin, size_t last) const {
    Group group;
    group.begin = begin;
    group.end = last + 1;
    for (size_t i = begin; i < last; ++i) {
      group.writes.set(insn_at(i)->rd);
      group.reads.set(insn_at(i)->rs1);
      group.reads.set(insn_at(i)->rs2);
    }
    const Command& command = *command_at(last);
    group.reads |= registers_of(listing_, command);
    group.reads.reset(0);
    group.writes.reset(0);
    group.ranges = memory_ranges(listing_, command);
    group.grants = std::holds_alternative<spec::NopCommand>(command.body);
    return group;
  }

  bool may_pass(const Group& group, size_t i) const {
    if (const spec::ScalarInsn* insn = insn_at(i)) {
      return !ends_piece(*insn) && !group.reads.test(insn->rd) && !group.writes.test(insn->rd) &&
             !group.writes.test(insn->rs1) && !group.writes.test(insn->rs2);
    }
    const Command* command = command_at(i);
    if (command == nullptr || command->queue() == spec::Queue::kDmaRemote) {
      return false;
    }
    const Used& used = used_by(i, *command);
    if ((used.registers & group.writes).any()) {
      return false;
    }
    return std::ranges::none_of(group.ranges, [&](const MemRange& mine) {
      return std::ranges::any_of(used.ranges, [&](const MemRange& other) {
        return (mine.write || other.write) && ranges_overlap(mine, other);
      });
    });
  }

  const Used& used_by(size_t i, const Command& command) const {
    const auto [at, fresh] = used_.try_emplace(i);
    if (fresh) {
      at->second = {registers_of(listing_, command), memory_ranges(listing_, command)};
    }
    return at->second;
  }

  void raise(std::vector<Group> groups) {
    const size_t begin = groups.front().begin;
    size_t first = begin;  // where the first transfer may be
    for (Group& group : groups) {
      if (!group.grants) {
        group.place = highest(group, begin, 0);
        first = std::min(first, group.place);
      }
    }
    size_t behind = 0;
    for (Group& group : groups) {
      if (group.grants) {
        group.place = highest(group, begin, first);
      }
      group.place = behind = std::max(behind, group.place);
      if (group.place < begin) {
        raised_[group.place].push_back({group.begin, group.end});
      }
    }
  }

  size_t highest(const Group& group, size_t from, size_t limit) const {
    limit = std::max(limit, from - std::min(from, kFarthest));
    while (from > limit && may_pass(group, from - 1)) {
      --from;
    }
    return from;
  }

  void reorder() {
    std::vector<bool> moved(listing_.items.size());
    for (const auto& [place, spans] : raised_) {
      for (const auto& [begin, end] : spans) {
        std::fill(moved.begin() + static_cast<ptrdiff_t>(begin),
                  moved.begin() + static_cast<ptrdiff_t>(end), true);
      }
    }
    std::vector<int> place(listing_.items.size(), -1);
    std::vector<Item> items;
    items.reserve(listing_.items.size());
    const auto take = [&](size_t i) {
      place[i] = static_cast<int>(items.size());
      items.push_back(std::move(listing_.items[i]));
    };
    for (size_t i = 0; i < listing_.items.size(); ++i) {
      if (const auto here = raised_.find(i); here != raised_.end()) {
        for (const auto& [begin, end] : here->second) {
          for (size_t j = begin; j < end; ++j) {
            take(j);
          }
        }
      }
      if (!moved[i]) {
        take(i);
      }
    }
    refer_to_places(items, place);
    listing_.items = std::move(items);
  }

  Listing& listing_;
  const std::set<uint32_t>& exchanges_;
  std::map<size_t, std::vector<std::pair<size_t, size_t>>> raised_;  // items, by their place
  mutable std::unordered_map<size_t, Used> used_;                    // by item
};

}  // namespace

void depart_early(Listing& listing, const std::set<uint32_t>& exchanges) {
  if (!exchanges.empty()) {
    Departures(listing, exchanges).run();
  }
}

}  // namespace tpu::compiler
