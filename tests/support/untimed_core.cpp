// Untimed machine: state, schedule, happens-before check.
#include "untimed_core.hpp"

#include <algorithm>

#include "command/cost.hpp"
#include "tpu/spec/program_image.h"
#include "untimed_state.hpp"

namespace tpu::test {

using compiler::Command;
using compiler::MemRange;
using spec::Space;

namespace {

constexpr int kQueues = kUntimedQueues;

void join(UntimedClock& a, const UntimedClock& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = std::max(a[i], b[i]);
  }
}

bool queue_is_remote(const Command& c) { return c.queue() == spec::Queue::kDmaRemote; }

}  // namespace

UntimedMachine::State::State(const exe::ExecutableT& e, const spec::BoardParams& b,
                             UntimedOptions o)
    : exe(e), board(b), options(o), random(o.seed) {
  tpu_program_image_header_t header;
  std::memcpy(&header, e.image.data(), sizeof(header));
  program.code.assign(e.image.begin() + header.header_bytes, e.image.end());
  for (const auto& s : e.slots) {
    compiler::SlotInfo info;
    info.bytes = s->bytes;
    program.listing.slots.push_back(info);
  }
  program.decode(board);
  mxu = std::make_unique<model::MxuScalarEngine>(spec::mxu_shape(b));
  cores.resize(e.partitions);
  for (Core& c : cores) {
    init(c);
  }
}

size_t UntimedMachine::State::partition_on(uint64_t core) const {
  if (exe.cores.empty() && core < exe.partitions) {
    return core;
  }
  const auto it = std::find(exe.cores.begin(), exe.cores.end(), core);
  if (it == exe.cores.end()) {
    throw std::runtime_error("a command names core " + std::to_string(core) +
                             ", which is not in the gang");
  }
  return static_cast<size_t>(it - exe.cores.begin());
}

void UntimedMachine::State::init(Core& c) const {
  const uint8_t poison = options.poison ? 0xff : 0;
  c.vmem.assign(static_cast<size_t>(board.core.vmem_kib) * 1024, poison);
  c.smem.assign(static_cast<size_t>(board.core.smem_kib) * 1024, 0);
  for (const auto& s : exe.slots) {
    c.slots.emplace_back(s->bytes, poison);
    if (s->kind == exe::SlotKind::constant) {
      c.slots.back().assign(exe.constants[s->index]->data.begin(),
                            exe.constants[s->index]->data.end());
    }
  }
  for (Clock& k : c.clock) {
    k.assign(static_cast<size_t>(exe.partitions) * kQueues, -1);
  }
  c.sequencer = c.clock[0];
}

std::vector<uint8_t>& UntimedMachine::State::memory(Core& c, const spec::Addr& a) {
  switch (static_cast<Space>(a.space)) {
    case Space::kHbm:
      if (a.slot >= c.slots.size()) {
        throw UntimedError("slot " + std::to_string(a.slot) + " is not bound");
      }
      return c.slots[a.slot];
    case Space::kVmem:
      return c.vmem;
    case Space::kSmem:
      return c.smem;
    default:
      throw UntimedError("operand without memory");
  }
}

uint8_t* UntimedMachine::State::at(Core& c, const spec::Addr& a, int64_t offset, int64_t bytes) {
  std::vector<uint8_t>& m = memory(c, a);
  if (offset < 0 || offset + bytes > static_cast<int64_t>(m.size())) {
    throw UntimedError("access at " + std::to_string(offset) + " of " + std::to_string(bytes) +
                       " bytes lies outside of a memory of " + std::to_string(m.size()));
  }
  return m.data() + offset;
}

bool UntimedMachine::State::ready(const Core& c, int queue) const {
  const auto& q = c.queue[static_cast<size_t>(queue)];
  if (q.empty()) {
    return false;
  }
  for (const spec::Wait& w : q.front().decoded->body.head().wait) {
    if (w.valid() && c.sem[w.sem].value < w.value) {
      return false;
    }
  }
  return true;
}

// The addresses of a command that may be in HBM.
template <typename Fn>
static void for_each_place(Command& command, Fn&& fn) {
  if (auto* d = std::get_if<spec::DmaCommand>(&command.body)) {
    fn(d->src);
    fn(d->dst);
  } else if (auto* i = std::get_if<spec::DmaIndexedCommand>(&command.body)) {
    fn(i->src);
    fn(i->dst);
    fn(i->list);
  } else if (auto* f = std::get_if<spec::FillCommand>(&command.body)) {
    fn(f->dst);
  }
}

void UntimedMachine::State::execute(Core& c, int queue) {
  const Queued q = c.queue[static_cast<size_t>(queue)].front();
  c.queue[static_cast<size_t>(queue)].pop_front();
  const spec::CommandHeader& head = q.decoded->body.head();
  const auto core = static_cast<size_t>(&c - cores.data());
  const size_t agent = core * kQueues + static_cast<size_t>(queue);
  Clock& clock = c.clock[static_cast<size_t>(queue)];
  join(clock, q.issued);
  for (const spec::Wait& w : head.wait) {
    if (!w.valid()) {
      continue;
    }
    if (!w.take()) {
      throw UntimedError("a wait that does not take");
    }
    take(c.sem[w.sem], w.value, clock);
  }
  const int number = c.issued[static_cast<size_t>(queue)]++;
  check(c, core, agent, number, q, clock);
  Command placed = q.decoded->body;
  for_each_place(placed, [&](spec::Addr& a) { a = q.placed(a); });
  std::visit([&](const auto& body) { work(c, q, body); }, placed.body);
  clock[agent] = number;
  for (const spec::Signal& s : head.signal) {
    if (!s.valid()) {
      continue;
    }
    Core& to = s.remote() ? cores[partition_on(q.regs[s.peer_reg])] : c;
    to.sem[s.sem].value += s.value;
    for (int i = 0; i < s.value; ++i) {
      to.sem[s.sem].signals.push_back(clock);
    }
  }
}

void UntimedMachine::State::check(Core& c, size_t core, size_t agent, int number, const Queued& q,
                                  const Clock& clock) {
  if (!options.check_order) {
    return;
  }
  Command resolved = q.decoded->body;
  const auto fix = [&](spec::Addr& a) {
    a = q.placed(a);
    a.offset = q.address(a);
    a.reg = 0;
  };
  for (spec::VpuAccess& a : resolved.accesses) {
    fix(a.addr);
  }
  for_each_place(resolved, fix);
  if (queue_is_remote(resolved) && std::holds_alternative<spec::DmaCommand>(resolved.body)) {
    // The destination is memory of the peer.
    Command there = resolved;
    auto& t = std::get<spec::DmaCommand>(there.body);
    t.head.queue = static_cast<uint8_t>(spec::Queue::kDmaOut);
    t.src.space = static_cast<uint8_t>(Space::kNone);
    const size_t peer = partition_on(q.regs[t.peer_reg]);
    note(cores[peer], peer, agent, number, there, clock);
  }
  note(c, core, agent, number, resolved, clock);
}

void UntimedMachine::State::note(Core& c, size_t core, size_t agent, int number,
                                 const Command& command, const Clock& clock) {
  for (const MemRange& r : memory_ranges(program.listing, command)) {
    std::vector<UntimedAccess>& past = c.past[{r.space, r.slot}];
    for (const UntimedAccess& p : past) {
      const auto a = static_cast<size_t>(p.agent);
      if ((p.range.write || r.write) && a != agent && clock[a] < p.number &&
          ranges_overlap(p.range, r)) {
        throw UntimedError("race on core " + std::to_string(core) + ", " +
                           std::string(spec::kSpaceNames[static_cast<size_t>(r.space)]) + " [" +
                           std::to_string(r.lo) + "," + std::to_string(r.hi) +
                           "): " + std::string(spec::kQueueNames[agent % kQueues]) + " command " +
                           std::to_string(number) + " (op " + std::to_string(command.head().op_id) +
                           ") is not ordered behind " +
                           std::string(spec::kQueueNames[a % kQueues]) + " command " +
                           std::to_string(p.number) + " (op " + std::to_string(p.op) + ")");
      }
    }
    if (r.write && r.pitch == 0) {
      std::erase_if(
          past, [&](const UntimedAccess& p) { return p.range.lo >= r.lo && p.range.hi <= r.hi; });
    }
    past.push_back({r, static_cast<int>(agent), number, command.head().op_id});
  }
}

std::string UntimedMachine::State::blocked() const {
  std::string text = "deadlock:";
  for (size_t i = 0; i < cores.size(); ++i) {
    for (int q = 0; q < kQueues; ++q) {
      const auto& queue = cores[i].queue[static_cast<size_t>(q)];
      if (queue.empty()) {
        continue;
      }
      const spec::CommandHeader& h = queue.front().decoded->body.head();
      text += "\n  core " + std::to_string(i) + " " +
              std::string(spec::kQueueNames[static_cast<size_t>(q)]) + " op " +
              std::to_string(h.op_id) + " waits for";
      for (const spec::Wait& w : h.wait) {
        if (w.valid() && cores[i].sem[w.sem].value < w.value) {
          text += " semaphore " + std::to_string(w.sem);
        }
      }
    }
  }
  return text;
}

void UntimedMachine::State::run() {
  for (;;) {
    bool moved = false, busy = false;
    for (Core& c : cores) {
      while (step(c)) {
        moved = true;
      }
    }
    std::vector<std::pair<Core*, int>> candidates;
    for (Core& c : cores) {
      for (int q = 0; q < kQueues; ++q) {
        busy = busy || !c.queue[static_cast<size_t>(q)].empty();
        if (ready(c, q)) {
          candidates.push_back({&c, q});
        }
      }
      busy = busy || !c.halted;
    }
    if (!candidates.empty() && options.seed != 0) {
      const auto [core, q] = candidates[random() % candidates.size()];
      execute(*core, q);
      continue;
    }
    for (const auto& [core, q] : candidates) {
      execute(*core, q);
      moved = true;
    }
    if (!busy) {
      break;
    }
    if (!moved) {
      throw UntimedError(blocked());
    }
  }
  for (size_t i = 0; i < cores.size(); ++i) {
    for (size_t s = 0; s < cores[i].sem.size(); ++s) {
      if (cores[i].sem[s].value != 0) {
        throw UntimedError("semaphore " + std::to_string(s) + " of core " + std::to_string(i) +
                           " is " + std::to_string(cores[i].sem[s].value) + " at the end");
      }
    }
  }
}

UntimedMachine::UntimedMachine(const exe::ExecutableT& executable, const spec::BoardParams& board,
                               UntimedOptions options)
    : state_(std::make_unique<State>(executable, board, options)) {}
UntimedMachine::~UntimedMachine() = default;

void UntimedMachine::set_argument(int core, size_t index, const std::vector<uint8_t>& bytes) {
  auto& slot = state_->cores[static_cast<size_t>(core)].slots[state_->exe.args[index]->slot];
  if (slot.size() != bytes.size()) {
    throw UntimedError("argument " + std::to_string(index) + " has the wrong size");
  }
  slot = bytes;
}

void UntimedMachine::run() { state_->run(); }

std::vector<uint8_t> UntimedMachine::result(int core, size_t index) const {
  return state_->cores[static_cast<size_t>(core)].slots[state_->exe.results[index]->slot];
}

std::vector<uint8_t> UntimedMachine::argument(int core, size_t index) const {
  return state_->cores[static_cast<size_t>(core)].slots[state_->exe.args[index]->slot];
}

int64_t UntimedMachine::commands() const { return state_->cores[0].commands; }

}  // namespace tpu::test
