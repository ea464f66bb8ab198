// Untimed machine: decoding, scheduling, data work, happens-before check.
#include "untimed_core.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>

#include "mxu/mxu_scalar.hpp"
#include "program/listing.hpp"
#include "tpu/spec/program_image.h"
#include "vpu/vpu_kernel.hpp"

namespace tpu::test {

namespace {

using compiler::Command;
using compiler::Listing;
using compiler::MemRange;
using spec::ScalarInsn;
using spec::ScalarOp;
using spec::Space;

constexpr int kQueues = spec::kQueueCount;

// A decoded word of the program: a scalar instruction or a command.
struct Decoded {
  bool command = false;
  ScalarInsn insn{};
  Command body;
};

template <typename T>
T read(const std::vector<uint8_t>& code, size_t at) {
  if (at + sizeof(T) > code.size()) {
    throw UntimedError("the code ends inside a command");
  }
  T out;
  std::memcpy(&out, code.data() + at, sizeof(T));
  return out;
}

struct Program {
  std::vector<uint8_t> code;
  std::map<size_t, Decoded> words;  // by word index
  std::map<uint32_t, int> program_at;
  std::vector<model::VpuProgram> vpu;
  Listing listing;  // slots and VPU programs, for byte ranges

  void decode();
  Decoded command_at(size_t word);
  int vpu_program(uint32_t offset);
};

int Program::vpu_program(uint32_t offset) {
  const auto it = program_at.find(offset);
  if (it != program_at.end()) {
    return it->second;
  }
  vpu.push_back(model::VpuProgram::decode(std::as_bytes(std::span(code)), offset));
  compiler::VpuProgram p;
  p.header = read<spec::VpuProgramHeader>(code, offset);
  size_t n = 0;
  for (const uint16_t s : p.header.section) {
    n += s;
  }
  for (size_t i = 0; i < n; ++i) {
    p.code.push_back(read<spec::VpuInsn>(code, offset + sizeof(p.header) + 8 * i));
  }
  listing.programs.push_back(p);
  const int index = static_cast<int>(vpu.size()) - 1;
  program_at[offset] = index;
  return index;
}

Decoded Program::command_at(size_t word) {
  Decoded d;
  const size_t at = word * 8;
  d.command = true;
  switch (static_cast<spec::Opcode>(code[at])) {
    case spec::Opcode::kNop:
      d.body.body = read<spec::NopCommand>(code, at);
      break;
    case spec::Opcode::kMatmul:
      d.body.body = read<spec::MatmulCommand>(code, at);
      break;
    case spec::Opcode::kVpuKernel: {
      const auto c = read<spec::VpuKernelCommand>(code, at);
      d.body.body = c;
      for (size_t i = 0; i < c.accesses; ++i) {
        d.body.accesses.push_back(
            read<spec::VpuAccess>(code, at + sizeof(c) + i * sizeof(spec::VpuAccess)));
      }
      d.body.program = vpu_program(c.program);
      break;
    }
    case spec::Opcode::kTranspose:
      d.body.body = read<spec::TransposeCommand>(code, at);
      break;
    case spec::Opcode::kDma:
      d.body.body = read<spec::DmaCommand>(code, at);
      break;
    case spec::Opcode::kFill:
      d.body.body = read<spec::FillCommand>(code, at);
      break;
    case spec::Opcode::kDmaIndexed:
      d.body.body = read<spec::DmaIndexedCommand>(code, at);
      break;
    default:
      throw UntimedError("unknown opcode " + std::to_string(code[at]));
  }
  return d;
}

void Program::decode() {
  for (size_t word = 0;;) {
    if (code.at(word * 8) >= 32) {
      Decoded d;
      d.insn = read<ScalarInsn>(code, word * 8);
      words[word] = d;
      if (static_cast<ScalarOp>(d.insn.op) == ScalarOp::kHalt) {
        return;
      }
      ++word;
    } else {
      words[word] = command_at(word);
      const int length = words[word].body.head().words;
      if (length == 0) {
        throw UntimedError("a command of 0 words");
      }
      word += static_cast<size_t>(length);
    }
  }
}

using Clock = std::vector<int>;  // per core and queue: commands known to be done

void join(Clock& a, const Clock& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = std::max(a[i], b[i]);
  }
}

struct Semaphore {
  int value = 0;
  std::deque<Clock> signals;  // one per unit
};

struct Past {
  MemRange range;
  int agent;
  int number;
  uint32_t op;
};

struct Queued {
  const Decoded* decoded = nullptr;
  std::array<uint64_t, 32> regs{};
  Clock issued;  // what the sequencer knew
};

struct Core {
  std::array<uint64_t, 32> regs{};
  size_t pc = 0;
  bool halted = false;
  std::vector<uint8_t> vmem, smem;
  std::vector<std::vector<uint8_t>> slots;
  std::array<std::deque<Queued>, kQueues> queue;
  std::array<Semaphore, 256> sem;
  std::array<int, kQueues> issued{};
  std::array<Clock, kQueues> clock;
  Clock sequencer;
  std::map<std::pair<Space, int>, std::vector<Past>> past;
  int64_t commands = 0;
};

}  // namespace

struct UntimedMachine::State {
  const exe::ExecutableT& exe;
  const spec::BoardParams board;
  UntimedOptions options;
  Program program;
  std::vector<Core> cores;
  std::unique_ptr<model::MxuScalarEngine> mxu;
  std::mt19937 random;

  State(const exe::ExecutableT& e, const spec::BoardParams& b, UntimedOptions o)
      : exe(e), board(b), options(o), random(o.seed) {
    tpu_program_image_header_t header;
    std::memcpy(&header, e.image.data(), sizeof(header));
    program.code.assign(e.image.begin() + header.header_bytes, e.image.end());
    for (const auto& s : e.slots) {
      compiler::SlotInfo info;
      info.alias_of = s->alias_of;
      info.bytes = s->bytes;
      program.listing.slots.push_back(info);
    }
    program.decode();
    spec::MxuShape shape;
    shape.rows = static_cast<uint32_t>(b.mxu.rows);
    shape.cols = static_cast<uint32_t>(b.mxu.cols);
    shape.chains = static_cast<uint32_t>(b.mxu.chains);
    shape.segment_rows = static_cast<uint32_t>(b.mxu.segment_rows);
    mxu = std::make_unique<model::MxuScalarEngine>(shape);
    cores.resize(e.partitions);
    for (Core& c : cores) {
      init(c);
    }
  }

  void init(Core& c) const {
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

  std::vector<uint8_t>& memory(Core& c, const spec::Addr& a) {
    switch (static_cast<Space>(a.space)) {
      case Space::kHbm:
        return c.slots[static_cast<size_t>(program.listing.root_slot(a.slot))];
      case Space::kVmem:
        return c.vmem;
      case Space::kSmem:
        return c.smem;
      default:
        throw UntimedError("operand without memory");
    }
  }

  uint8_t* at(Core& c, const spec::Addr& a, int64_t offset, int64_t bytes) {
    std::vector<uint8_t>& m = memory(c, a);
    if (offset < 0 || offset + bytes > static_cast<int64_t>(m.size())) {
      throw UntimedError("access at " + std::to_string(offset) + " of " + std::to_string(bytes) +
                         " bytes lies outside of a memory of " + std::to_string(m.size()));
    }
    return m.data() + offset;
  }

  int64_t address(const Queued& q, const spec::Addr& a) const {
    return a.offset + static_cast<int64_t>(q.regs[a.reg]);
  }

  // ---- sequencer
  bool step(Core& c) {
    if (c.halted) {
      return false;
    }
    const Decoded& d = program.words.at(c.pc);
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

  // Bytes of SMEM that the sequencer may touch now: no write of an engine to them is unordered.
  uint8_t* scalar_memory(Core& c, uint64_t address, int64_t bytes) {
    spec::Addr a{};
    a.space = static_cast<uint8_t>(Space::kSmem);
    const auto lo = static_cast<int64_t>(address);
    MemRange range;
    range.space = Space::kSmem;
    range.lo = lo;
    range.hi = lo + bytes;
    for (const Past& p : c.past[{Space::kSmem, 0}]) {
      if (options.check_order && ranges_overlap(p.range, range) &&
          c.sequencer[static_cast<size_t>(p.agent)] < p.number) {
        throw UntimedError("the sequencer touches SMEM [" + std::to_string(lo) + "," +
                           std::to_string(range.hi) + ") before command " +
                           std::to_string(p.number) + " of an engine is known to be done");
      }
    }
    return at(c, a, lo, bytes);
  }

  static bool taken(const Core& c, const ScalarInsn& i) {
    const auto a = static_cast<int64_t>(c.regs[i.rs1]), b = static_cast<int64_t>(c.regs[i.rs2]);
    switch (static_cast<ScalarOp>(i.op)) {
      case ScalarOp::kBeq:
        return a == b;
      case ScalarOp::kBne:
        return a != b;
      case ScalarOp::kBlt:
        return a < b;
      case ScalarOp::kBge:
        return a >= b;
      case ScalarOp::kBneg:
        return a < 0;
      default:
        return true;
    }
  }

  // False: stalled, or over.
  bool scalar(Core& c, const ScalarInsn& i) {
    const auto rs1 = c.regs[i.rs1], rs2 = c.regs[i.rs2];
    const auto imm = static_cast<uint64_t>(int64_t{i.imm});
    uint64_t out = 0;
    switch (static_cast<ScalarOp>(i.op)) {
      case ScalarOp::kHalt:
        c.halted = true;
        return false;
      case ScalarOp::kJmp:
      case ScalarOp::kBeq:
      case ScalarOp::kBne:
      case ScalarOp::kBlt:
      case ScalarOp::kBge:
      case ScalarOp::kBneg:
        c.pc = taken(c, i) ? static_cast<size_t>(i.imm) : c.pc + 1;
        return true;
      case ScalarOp::kSwait: {
        Semaphore& s = c.sem[i.rs1];
        if (s.value < i.imm) {
          return false;
        }
        s.value -= i.imm;
        for (int n = 0; n < i.imm; ++n) {
          join(c.sequencer, s.signals.front());
          s.signals.pop_front();
        }
        break;
      }
      case ScalarOp::kLds32: {
        int32_t v;
        std::memcpy(&v, scalar_memory(c, rs1 + imm, 4), 4);
        out = static_cast<uint64_t>(int64_t{v});
        break;
      }
      case ScalarOp::kLds64:
        std::memcpy(&out, scalar_memory(c, rs1 + imm, 8), 8);
        break;
      case ScalarOp::kSts32:
        std::memcpy(scalar_memory(c, rs1 + imm, 4), &rs2, 4);
        break;
      case ScalarOp::kMarkb:
      case ScalarOp::kMarke:
        break;
      case ScalarOp::kLih:
        out = imm << 32 | (c.regs[i.rd] & 0xffffffffu);
        break;
      case ScalarOp::kMul:
        out = rs1 * rs2;
        break;
      case ScalarOp::kSari:
        out = static_cast<uint64_t>(static_cast<int64_t>(rs1) >> imm);
        break;
      case ScalarOp::kMin:
        out = static_cast<uint64_t>(std::min(static_cast<int64_t>(rs1), static_cast<int64_t>(rs2)));
        break;
      case ScalarOp::kMax:
        out = static_cast<uint64_t>(std::max(static_cast<int64_t>(rs1), static_cast<int64_t>(rs2)));
        break;
      case ScalarOp::kSlt:
        out = static_cast<int64_t>(rs1) < static_cast<int64_t>(rs2) ? 1 : 0;
        break;
      case ScalarOp::kSltu:
        out = rs1 < rs2 ? 1 : 0;
        break;
      case ScalarOp::kSeq:
        out = rs1 == rs2 ? 1 : 0;
        break;
      case ScalarOp::kLi:
        out = imm;
        break;
      case ScalarOp::kAddi:
        out = rs1 + imm;
        break;
      case ScalarOp::kMuli:
        out = rs1 * imm;
        break;
      case ScalarOp::kAdd:
        out = rs1 + rs2;
        break;
      case ScalarOp::kSub:
        out = rs1 - rs2;
        break;
      case ScalarOp::kAnd:
        out = rs1 & rs2;
        break;
      case ScalarOp::kOr:
        out = rs1 | rs2;
        break;
      case ScalarOp::kXor:
        out = rs1 ^ rs2;
        break;
      case ScalarOp::kXori:
        out = rs1 ^ imm;
        break;
      case ScalarOp::kAndi:
        out = rs1 & imm;
        break;
      case ScalarOp::kShli:
        out = rs1 << imm;
        break;
      case ScalarOp::kShri:
        out = rs1 >> imm;
        break;
      case ScalarOp::kRid:
        out = static_cast<uint64_t>(&c - cores.data());
        break;
      case ScalarOp::kNrep:
        out = cores.size();
        break;
      default:
        throw UntimedError("scalar instruction that the untimed machine does not know");
    }
    if (i.rd != 0) {
      c.regs[i.rd] = out;
    }
    ++c.pc;
    return true;
  }

  // ---- queues
  bool ready(const Core& c, int queue) const {
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

  void execute(Core& c, int queue) {
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
      Semaphore& s = c.sem[w.sem];
      s.value -= w.value;
      for (int i = 0; i < w.value; ++i) {
        join(clock, s.signals.front());
        s.signals.pop_front();
      }
    }
    const int number = c.issued[static_cast<size_t>(queue)]++;
    check(c, core, agent, number, q, clock);
    std::visit([&](const auto& body) { work(c, q, body); }, q.decoded->body.body);
    clock[agent] = number;
    for (const spec::Signal& s : head.signal) {
      if (!s.valid()) {
        continue;
      }
      Core& to = s.remote() ? cores.at(q.regs[s.peer_reg]) : c;
      to.sem[s.sem].value += s.value;
      for (int i = 0; i < s.value; ++i) {
        to.sem[s.sem].signals.push_back(clock);
      }
    }
  }

  // ---- happens-before
  void check(Core& c, size_t core, size_t agent, int number, const Queued& q, const Clock& clock) {
    if (!options.check_order) {
      return;
    }
    Command resolved = q.decoded->body;
    const auto fix = [&](spec::Addr& a) {
      a.offset = address(q, a);
      a.reg = 0;
    };
    for (spec::VpuAccess& a : resolved.accesses) {
      fix(a.addr);
    }
    if (auto* d = std::get_if<spec::DmaCommand>(&resolved.body)) {
      fix(d->src);
      fix(d->dst);
      if (queue_is_remote(resolved)) {
        // The destination is memory of the peer.
        Command there = resolved;
        auto& t = std::get<spec::DmaCommand>(there.body);
        t.head.queue = static_cast<uint8_t>(spec::Queue::kDmaOut);
        t.src.space = static_cast<uint8_t>(Space::kNone);
        const size_t peer = q.regs[d->peer_reg];
        note(cores.at(peer), peer, agent, number, there, clock);
      }
    }
    if (auto* d = std::get_if<spec::DmaIndexedCommand>(&resolved.body)) {
      fix(d->src);
      fix(d->dst);
      fix(d->list);
    }
    note(c, core, agent, number, resolved, clock);
  }

  static bool queue_is_remote(const Command& c) { return c.queue() == spec::Queue::kDmaRemote; }

  void note(Core& c, size_t core, size_t agent, int number, const Command& command,
            const Clock& clock) {
    for (const MemRange& r : memory_ranges(program.listing, command)) {
      std::vector<Past>& past = c.past[{r.space, r.slot}];
      for (const Past& p : past) {
        const auto a = static_cast<size_t>(p.agent);
        if ((p.range.write || r.write) && a != agent && clock[a] < p.number &&
            ranges_overlap(p.range, r)) {
          throw UntimedError("race on core " + std::to_string(core) + ", " +
                             std::string(spec::kSpaceNames[static_cast<size_t>(r.space)]) + " [" +
                             std::to_string(r.lo) + "," + std::to_string(r.hi) +
                             "): " + std::string(spec::kQueueNames[agent % kQueues]) + " command " +
                             std::to_string(number) + " (op " +
                             std::to_string(command.head().op_id) + ") is not ordered behind " +
                             std::string(spec::kQueueNames[a % kQueues]) + " command " +
                             std::to_string(p.number) + " (op " + std::to_string(p.op) + ")");
        }
      }
      if (r.write && r.pitch == 0) {
        std::erase_if(past,
                      [&](const Past& p) { return p.range.lo >= r.lo && p.range.hi <= r.hi; });
      }
      past.push_back({r, static_cast<int>(agent), number, command.head().op_id});
    }
  }

  // ---- data work
  void work(Core&, const Queued&, const spec::NopCommand&) {}

  void work(Core& c, const Queued& q, const spec::MatmulCommand& m) {
    model::MxuJob job;
    for (const MemRange& r : memory_ranges(program.listing, q.decoded->body)) {
      spec::Addr a{};
      a.space = static_cast<uint8_t>(Space::kVmem);
      at(c, a, r.lo, r.hi - r.lo);
    }
    job.lhs = c.vmem.data() + address(q, m.lhs);
    job.rhs = c.vmem.data() + address(q, m.rhs);
    job.out = c.vmem.data() + address(q, m.out);
    job.lhs_is_bf16 = m.lhs_type == static_cast<uint8_t>(spec::Elem::kBf16);
    job.rhs_is_bf16 = m.rhs_type == static_cast<uint8_t>(spec::Elem::kBf16);
    job.accumulate = m.accumulate();
    for (size_t i = 0; i < 4; ++i) {
      job.m_count[i] = m.m[i];
      job.m_lhs_stride[i] = m.m_lhs[i];
      job.m_out_stride[i] = m.m_out[i];
    }
    for (size_t i = 0; i < 3; ++i) {
      job.t_count[i] = m.t[i];
      job.t_lhs_stride[i] = m.t_lhs[i];
      job.t_rhs_stride[i] = m.t_rhs[i];
      job.k_count[i] = m.k[i];
      job.k_rhs_stride[i] = m.k_rhs[i];
    }
    for (size_t i = 0; i < 2; ++i) {
      job.n_count[i] = m.n[i];
      job.n_rhs_stride[i] = m.n_rhs[i];
      job.n_out_stride[i] = m.n_out[i];
    }
    mxu->run(job);
  }

  void work(Core& c, const Queued& q, const spec::VpuKernelCommand& k) {
    std::vector<int64_t> bases;
    for (const spec::VpuAccess& a : q.decoded->body.accesses) {
      bases.push_back(address(q, a.addr));
    }
    std::array<uint32_t, model::kVpuScalars> scalars{};
    for (size_t i = 0; i < scalars.size(); ++i) {
      scalars[i] = static_cast<uint32_t>(q.regs[k.scalar[i]]);
    }
    const model::VpuKernel kernel(program.vpu[static_cast<size_t>(q.decoded->body.program)], k,
                                  q.decoded->body.accesses, bases, scalars);
    const std::string error = kernel.check(c.vmem.size());
    if (!error.empty()) {
      throw UntimedError(error);
    }
    kernel.run(c.vmem.data());
  }

  void work(Core& c, const Queued& q, const spec::TransposeCommand& t) {
    const int64_t e = t.elem_bytes;
    for (int64_t b = 0; b < t.batch; ++b) {
      for (int64_t r = 0; r < t.rows; ++r) {
        for (int64_t k = 0; k < t.cols; ++k) {
          const int64_t from = address(q, t.src) + b * t.src_batch + r * t.src_pitch + k * e;
          const int64_t to = address(q, t.dst) + b * t.dst_batch + k * t.dst_pitch + r * e;
          std::memcpy(at(c, t.dst, to, e), at(c, t.src, from, e), static_cast<size_t>(e));
        }
      }
    }
  }

  template <typename Fn>
  static void for_box(const std::array<uint32_t, 5>& n, Fn&& fn) {
    std::array<uint32_t, 5> i{};
    for (const uint32_t count : n) {
      if (count == 0) {
        return;
      }
    }
    for (;;) {
      fn(i);
      size_t d = 5;
      while (d > 0 && ++i[d - 1] == n[d - 1]) {
        i[--d] = 0;
      }
      if (d == 0) {
        return;
      }
    }
  }

  void work(Core& c, const Queued& q, const spec::DmaCommand& d) {
    const bool remote = queue_is_remote(q.decoded->body);
    Core& to = remote ? cores.at(q.regs[d.peer_reg]) : c;
    const int64_t src = address(q, d.src), dst = address(q, d.dst);
    auto counts = d.counts;
    int64_t run = d.elem_bytes;
    if (d.src_strides[4] == run && d.dst_strides[4] == run) {
      run *= counts[4];
      counts[4] = counts[4] == 0 ? 0 : 1;
    }
    for_box(counts, [&](const std::array<uint32_t, 5>& i) {
      int64_t s = src, t = dst;
      for (size_t k = 0; k < 5; ++k) {
        s += i[k] * d.src_strides[k];
        t += i[k] * d.dst_strides[k];
      }
      std::memmove(at(to, d.dst, t, run), at(c, d.src, s, run), static_cast<size_t>(run));
    });
  }

  void work(Core& c, const Queued& q, const spec::DmaIndexedCommand& d) {
    const bool scatter = d.scatter();
    for (int64_t r = 0; r < d.records; ++r) {
      int32_t value = 0;
      std::memcpy(&value, at(c, d.list, address(q, d.list) + 4 * r, 4), 4);
      if (value == -1) {
        continue;
      }
      const int64_t place = int64_t{value} * d.unit;
      for_box({1, d.counts[0], d.counts[1], d.counts[2], d.counts[3]},
              [&](const std::array<uint32_t, 5>& i) {
                int64_t s = scatter ? r * d.record_stride : place;
                int64_t t = scatter ? place : r * d.record_stride;
                for (size_t k = 0; k < 4; ++k) {
                  s += i[k + 1] * d.src_strides[k];
                  t += i[k + 1] * d.dst_strides[k];
                }
                const int64_t indexed = scatter ? t : s, e = d.elem_bytes;
                if (indexed < 0 || indexed + e > d.span) {
                  throw UntimedError("a list value leads outside of its span");
                }
                std::memmove(at(c, d.dst, address(q, d.dst) + t, e),
                             at(c, d.src, address(q, d.src) + s, e), static_cast<size_t>(e));
              });
    }
  }

  void work(Core& c, const Queued& q, const spec::FillCommand& f) {
    for_box(f.counts, [&](const std::array<uint32_t, 5>& i) {
      int64_t t = address(q, f.dst);
      for (size_t k = 0; k < 5; ++k) {
        t += i[k] * f.dst_strides[k];
      }
      std::memcpy(at(c, f.dst, t, f.elem_bytes), &f.pattern, f.elem_bytes);
    });
  }

  // ---- schedule
  std::string blocked() const {
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

  void run() {
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
};

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
  const int slot =
      state_->program.listing.root_slot(static_cast<int>(state_->exe.results[index]->slot));
  return state_->cores[static_cast<size_t>(core)].slots[static_cast<size_t>(slot)];
}

std::vector<uint8_t> UntimedMachine::argument(int core, size_t index) const {
  return state_->cores[static_cast<size_t>(core)].slots[state_->exe.args[index]->slot];
}

int64_t UntimedMachine::commands() const { return state_->cores[0].commands; }

}  // namespace tpu::test
