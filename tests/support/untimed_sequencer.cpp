// Sequencer of the untimed machine.
#include <algorithm>
#include <string>

#include "untimed_state.hpp"

namespace tpu::test {

using spec::ScalarInsn;
using spec::ScalarOp;
using spec::Space;

bool UntimedMachine::State::step(Core& c) {
  if (c.halted) {
    return false;
  }
  const UntimedWord& d = program.words.at(c.pc);
  if (d.command) {
    auto& q = c.queue[static_cast<size_t>(d.body.queue())];
    if (q.size() >= static_cast<size_t>(board.core.queue_depth)) {
      return false;
    }
    q.push_back({&d, c.regs, c.sequencer});
    c.pc += d.body.head().words;
    ++c.commands;
    return true;
  }
  return scalar(c, d.insn);
}

// Takes `amount` and knows what the signals knew.
void UntimedMachine::State::take(UntimedSemaphore& s, int amount, Clock& clock) {
  s.value -= amount;
  for (int n = 0; n < amount; ++n) {
    for (size_t i = 0; i < clock.size(); ++i) {
      clock[i] = std::max(clock[i], s.signals.front()[i]);
    }
    s.signals.pop_front();
  }
}

// Bytes of SMEM that the sequencer may touch now: no write of an engine to them is unordered.
uint8_t* UntimedMachine::State::scalar_memory(Core& c, uint64_t address, int64_t bytes) {
  spec::Addr a{};
  a.space = static_cast<uint8_t>(Space::kSmem);
  const auto lo = static_cast<int64_t>(address);
  compiler::MemRange range;
  range.space = Space::kSmem;
  range.lo = lo;
  range.hi = lo + bytes;
  for (const UntimedAccess& p : c.past[{Space::kSmem, 0}]) {
    if (options.check_order && ranges_overlap(p.range, range) &&
        c.sequencer[static_cast<size_t>(p.agent)] < p.number) {
      throw UntimedError("the sequencer touches SMEM [" + std::to_string(lo) + "," +
                         std::to_string(range.hi) + ") before command " + std::to_string(p.number) +
                         " of an engine is known to be done");
    }
  }
  return at(c, a, lo, bytes);
}

void UntimedMachine::State::scalar_access(Core& c, const ScalarInsn& i) {
  const uint64_t address = c.regs[i.rs1] + static_cast<uint64_t>(int64_t{i.imm});
  uint64_t out = 0;
  switch (static_cast<ScalarOp>(i.op)) {
    case ScalarOp::kSts32:
      std::memcpy(scalar_memory(c, address, 4), &c.regs[i.rs2], 4);
      return;
    case ScalarOp::kLds32: {
      int32_t v;
      std::memcpy(&v, scalar_memory(c, address, 4), 4);
      out = static_cast<uint64_t>(int64_t{v});
      break;
    }
    default:
      std::memcpy(&out, scalar_memory(c, address, 8), 8);
      break;
  }
  if (i.rd != 0) {
    c.regs[i.rd] = out;
  }
}

bool UntimedMachine::State::scalar(Core& c, const ScalarInsn& i) {
  const auto op = static_cast<ScalarOp>(i.op);
  const auto set = [&](uint64_t value) {
    if (i.rd != 0) {
      c.regs[i.rd] = value;
    }
  };
  if (spec::scalar_class(op) == spec::ScalarClass::kBranch) {
    c.pc = spec::scalar_taken(i, c.regs) ? static_cast<size_t>(i.imm) : c.pc + 1;
    return true;
  }
  if (spec::scalar_class(op) == spec::ScalarClass::kArithmetic) {
    set(spec::scalar_result(i, c.regs));
    ++c.pc;
    return true;
  }
  switch (op) {
    case ScalarOp::kHalt:
      c.halted = true;
      return false;
    case ScalarOp::kSwait:
      if (c.sem[i.rs1].value < i.imm) {
        return false;
      }
      take(c.sem[i.rs1], i.imm, c.sequencer);
      break;
    case ScalarOp::kLds32:
    case ScalarOp::kLds64:
    case ScalarOp::kSts32:
      scalar_access(c, i);
      break;
    case ScalarOp::kMarkb:
    case ScalarOp::kMarke:
      break;
    case ScalarOp::kRid:
      set(static_cast<uint64_t>(&c - cores.data()));
      break;
    case ScalarOp::kNrep:
      set(cores.size());
      break;
    default:
      throw UntimedError("scalar instruction that the untimed machine does not know");
  }
  ++c.pc;
  return true;
}

}  // namespace tpu::test
