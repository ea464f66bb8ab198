// all_reduce by pairwise exchange: partner = core id xor mask, own value plus the partner's.
// Small buckets: doubling, masks ascending (core, x, y), the whole bucket every time; the sum of an
// element is ((0+1)+(2+3))+((4+5)+(6+7)). Large ones: halving (emit_halving.cpp). Streamed buckets
// go piece by piece from home to home; packed ones lie in VMEM as a whole.
//
// A transfer writes memory of another core, so its owner grants it first (credit: a nop of the
// remote queue whose signal goes to the partner), the sender takes the credit, and the arrival is
// a wait of the receiver. Credits and arrivals have a pair of semaphores for each
// partner role (`channel`: a mask of doubling, the pairs of a step of halving); both sides use them
// in the same order, since they run the same program.
#include <algorithm>

#include "emit/exchange_run.hpp"
#include "vpu/vpu_build.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t kSmallBytes = 64 * 1024;

}  // namespace

MemRange vmem_range(int64_t address, int64_t bytes, bool write) {
  MemRange r;
  r.lo = address;
  r.hi = address + bytes;
  r.write = write;
  return r;
}

spec::Addr offset_by(spec::Addr a, int reg) {
  a.reg = static_cast<uint8_t>(reg);
  return a;
}

int Emitter::peer_register(int64_t mask) {
  auto it = peers_.find(mask);
  if (it == peers_.end()) {
    const int reg = kFirstPeerRegister + static_cast<int>(peers_.size());
    listing.append(spec::ScalarOp::kXori, reg, kPartitionRegister, 0, static_cast<int32_t>(mask));
    it = peers_.emplace(mask, reg).first;
  }
  return it->second;
}

// Two semaphores per channel, from the top of the board's: credits, then arrivals.
int Emitter::channel_semaphores(int64_t channel) {
  auto it = remote_.find(channel);
  if (it == remote_.end()) {
    remote_semaphores_ -= 2;
    it = remote_.emplace(channel, remote_semaphores_).first;
  }
  return it->second;
}

// Tells the partner that it may write `range` of this core. Returns the item.
int Emitter::grant(const Link& link, const MemRange& range, uint32_t id) {
  auto c = make_command<spec::NopCommand>(spec::Opcode::kNop, spec::Queue::kDmaRemote, id);
  c.head.signal[0] = remote_signal(channel_semaphores(link.channel), link.peer);
  Command command;
  command.body = c;
  command.windows = {range};
  return listing.append(std::move(command));
}

void Emitter::send(const Link& link, const spec::Addr& src, const spec::Addr& dst, int64_t bytes,
                   int64_t unit, const MemRange& reads, uint32_t id) {
  const int sem = channel_semaphores(link.channel);
  auto c = make_command<spec::DmaCommand>(spec::Opcode::kDma, spec::Queue::kDmaRemote, id);
  c.src = src;
  c.dst = dst;
  c.elem_bytes = static_cast<uint32_t>(unit);
  c.counts = {1, 1, 1, 1, static_cast<uint32_t>(bytes / unit)};
  c.src_strides[4] = c.dst_strides[4] = unit;
  c.peer_reg = static_cast<uint8_t>(link.peer);
  c.head.wait[0] = taking_wait(sem);
  c.head.signal[0] = remote_signal(sem + 1, link.peer);
  Command command;
  command.body = c;
  command.windows = {reads};
  listing.append(std::move(command));
}

void Emitter::receive(const Link& link, const MemRange& range, int granted, uint32_t id) {
  auto c = make_command<spec::NopCommand>(spec::Opcode::kNop, spec::Queue::kVpu, id);
  c.head.wait[0] = taking_wait(channel_semaphores(link.channel) + 1);
  Command command;
  command.body = c;
  command.windows = {range};
  command.implies = {granted};
  listing.append(std::move(command));
}

// out = a (op) b, dense. Windows stand in for addresses with a register.
void Emitter::combine(const ReducePiece& p, const spec::Addr& a, const spec::Addr& b,
                      const spec::Addr& out, int64_t bytes, std::vector<MemRange> windows) {
  const int64_t count = bytes / p.elem_bytes;
  auto c = flat_vpu_kernel(count, p.id);
  Command command;
  for (const spec::Addr& addr : {a, b, out}) {
    spec::VpuAccess access{};
    access.addr = addr;
    access.type = p.type;
    access.lane = static_cast<int32_t>(p.elem_bytes);
    access.loop[3] = static_cast<int32_t>(1024 * p.elem_bytes);
    command.accesses.push_back(access);
  }
  command.program = p.program;
  command.body = c;
  command.windows = std::move(windows);
  listing.append(std::move(command));
}

void Emitter::exchange_doubling(ReducePiece& p) {
  const auto link = [&](size_t s) {
    const int64_t mask = p.exchange->masks[s];
    return Link{mask, peer_register(mask)};
  };
  for (size_t s = 0; s < p.exchange->masks.size(); ++s) {
    p.landing.push_back(take(p.bytes));
    p.granted.push_back(grant(link(s), vmem_range(p.landing[s], p.bytes, true), p.id));
  }
  for (size_t s = 0; s < p.exchange->masks.size(); ++s) {
    const int64_t there = p.landing[s];
    send(link(s), vmem_addr(p.own), vmem_addr(there), p.bytes, p.elem_bytes,
         vmem_range(p.own, p.bytes, false), p.id);
    receive(link(s), vmem_range(there, p.bytes, true), p.granted[s], p.id);
    // The sum replaces what arrived: the bucket may still be on its way out.
    combine(p, vmem_addr(p.own), vmem_addr(there), vmem_addr(there), p.bytes, {});
    p.own = there;
  }
}

namespace {

// Shares of packed pieces, in the order of the spans.
std::vector<std::vector<Share>> cut_pieces(const Kernel& k, int64_t limit) {
  std::vector<std::vector<Share>> pieces;
  int64_t used = limit;  // opens a piece at once
  for (const Span& span : k.spans) {
    const int64_t end = span.from + span.bytes;
    for (int64_t from = span.from; from < end;) {
      if (used + std::min(end - from, limit) > limit) {
        pieces.emplace_back();
        used = 0;
      }
      const int64_t bytes = std::min(end - from, limit - used);
      pieces.back().push_back({span.value, from, bytes, used});
      used += bytes;
      from += bytes;
    }
  }
  return pieces;
}

}  // namespace

// own + arrived, for the kernel's reduction.
int Emitter::reduce_program(const Op& op) {
  const Elem elem = op.operand_type(0).elem;
  VpuProgram sum;
  sum.header.registers = 2;
  sum.header.section[kBody] = 4;
  const auto insn = [&](spec::VpuOp o, int rd, int rs1, int rs2, uint32_t imm) {
    sum.code.push_back({static_cast<uint8_t>(o), static_cast<uint8_t>(rd),
                        static_cast<uint8_t>(rs1), static_cast<uint8_t>(rs2), imm});
  };
  insn(spec::VpuOp::kLoad, 0, 0, 0, 0);
  insn(spec::VpuOp::kLoad, 1, 0, 0, 1);
  insn(reduce_op(op, *simple_reducer(*op.regions[0]), elem), 0, 0, 1, 0);
  insn(spec::VpuOp::kStore, 0, 0, 0, 2);
  return listing.add_program(std::move(sum));
}

void Emitter::emit_all_reduce(const Kernel& k) {
  finish_run();  // exchanges use the same channels, one after the other
  if (k.streamed) {
    start_run(k);
    return;
  }
  const Exchange exchange = exchange_of(*k.ops[0], module_.num_cores);
  const int64_t grain = kAlign << exchange.stages();
  const int64_t limit = std::max(board_.core.vmem_kib * 1024 / 4 / grain, int64_t{1}) * grain;
  for (const std::vector<Share>& shares : cut_pieces(k, limit)) {
    try {
      emit_packed(k, exchange, shares);
    } catch (const VmemFull&) {
      too_large(k);
    }
  }
}

// Small values and rests, in one area. Results that are complete stay in it.
void Emitter::emit_packed(const Kernel& k, const Exchange& exchange,
                          const std::vector<Share>& shares) {
  const Op& op = *k.ops[0];
  const auto stages = static_cast<int64_t>(exchange.stages());
  const int64_t used = shares.back().at + shares.back().bytes, grain = kAlign << stages;
  const bool halving = stages > 0 && used > kSmallBytes;
  const int64_t count = halving ? (used + kernels_.piece - 1) / kernels_.piece : 1;
  ExchangeRun run;
  run.kernel = &k;
  run.exchange = exchange;
  run.bytes = round_up((used + count - 1) / count, grain);
  run.unit = elem_bytes(op.operand_type(0).elem);
  run.type = static_cast<uint8_t>(isa_elem(op.operand_type(0).elem));
  run.program = reduce_program(op);
  run.id = op_id(k);
  run.in_place = true;
  const int64_t bucket = take(run.bytes * count);
  for (const Share& s : shares) {
    const Buffer& b = buffer(k.reads[s.value]);
    const spec::Addr src = where(b, s.from);
    copy_bytes(src, vmem_addr(bucket + s.at), s.bytes, run.unit, run.id);
  }
  if (used < run.bytes * count) {
    fill(vmem_addr(bucket + used), run.unit, (run.bytes * count - used) / run.unit, 0, run.id);
  }
  int64_t result = bucket;
  if (halving) {
    for (int64_t i = 0; i < count; ++i) {
      run.buckets.push_back(bucket + i * run.bytes);
      run.parts.emplace_back();
      run.parts.back().used = run.bytes;
    }
    take_run_memory(run);
    stage_registers(exchange);
    half_registers(run);
    while (run.round < run.rounds()) {
      run_round(run);
    }
  } else if (stages > 0) {
    ReducePiece p;
    p.exchange = &exchange;
    p.bytes = run.bytes;
    p.elem_bytes = run.unit;
    p.type = run.type;
    p.program = run.program;
    p.id = run.id;
    p.own = bucket;
    exchange_doubling(p);
    result = p.own;
    run.memory = p.landing;
  }
  run.memory.push_back(bucket);
  const std::vector<Buffer*> inside = place_packed(k, shares, result, run);
  for (const int64_t area : run.memory) {
    if (area != result || inside.empty()) {
      give(area);
    }
  }
  if (!inside.empty()) {  // they share its memory
    share(result, inside);
  }
}

// Results of a packed exchange: buffers that stay inside the area are returned, others go home.
std::vector<Buffer*> Emitter::place_packed(const Kernel& k, const std::vector<Share>& shares,
                                           int64_t result, const ExchangeRun& run) {
  std::vector<Buffer*> inside;
  for (const Share& s : shares) {
    Buffer& b = buffer(k.writes[s.value]);
    if (s.bytes == b.bytes && b.bytes <= resident_limit()) {
      b.vmem = result + s.at;
      inside.push_back(&b);
      if (b.must_store) {
        store(b, run.id);
      }
      continue;
    }
    if (b.vmem < 0) {
      give_home(b);
      b.in_hbm = b.in_hbm || s.from + s.bytes == b.bytes;
    }
    copy_bytes(vmem_addr(result + s.at), where(b, s.from), s.bytes, run.unit, run.id);
    if (b.vmem >= 0 && b.must_store && s.from + s.bytes == b.bytes) {
      store(b, run.id);
    }
  }
  return inside;
}

}  // namespace tpu::compiler
