// all_reduce by pairwise exchange: partner = core id xor mask, own value plus the partner's.
// Small buckets: doubling, masks ascending (core, x, y), the whole bucket every time; the sum of an
// element is ((0+1)+(2+3))+((4+5)+(6+7)). Large ones: halving, after which every core owns a part,
// then the way back. On all eight cores, core 0's half of the bucket goes x before y and core 1's
// half y before x, so that both links of a chip are busy; its sum is ((0+1)+(4+5))+((2+3)+(6+7)).
// Large buckets are cut into pieces that follow each other through the stages. Cuts and halves
// depend on the values' sizes and the board alone.
//
// A transfer writes memory of another core, so its owner grants it first (credit: a nop of the
// remote queue whose signal goes to the partner), the sender takes the credit, and the arrival is
// a wait of the receiver's VPU queue. Credits and arrivals have a pair of semaphores for each
// partner role (`channel`: a mask of doubling, a stage of halving); both sides use them in the same
// order, since they run the same program.
#include <algorithm>

#include "codegen/emitter.hpp"
#include "codegen/vpu_build.hpp"

namespace tpu::compiler {

// Masks that generate all groups, in reduced form (each has a highest bit that no other has), and
// those bits. Groups must be the cosets of one set of masks.
struct Exchange {
  std::vector<int64_t> masks;
  std::vector<int> bits;
};

namespace {

constexpr int64_t kSmallBytes = 64 * 1024;
constexpr int64_t kPieceBytes = 512 * 1024;          // of a bucket: enough for a link's bandwidth
constexpr int64_t kStageChannel = int64_t{1} << 32;  // channels of halving stages; below: masks
// Registers, one for each stage.
constexpr int kKeepRegister = kFirstOffsetRegister;           // bytes to the half kept
constexpr int kSendRegister = kFirstOffsetRegister + 3;       // bytes to the half sent
constexpr int kWholeRegister = kFirstOffsetRegister + 6;      // bytes to the part owned
constexpr int kStagePeerRegister = kFirstOffsetRegister + 9;  // partner
constexpr int kStageBitRegister = kFirstOffsetRegister + 12;  // 0: keeps the first half
constexpr int kTemporaryRegister = kFirstOffsetRegister + 15;

int top_bit(int64_t mask) { return 63 - __builtin_clzll(static_cast<uint64_t>(mask)); }

Exchange exchange_of(const Op& op, int64_t cores) {
  std::vector<std::vector<int64_t>> groups = op.as<CollectiveAttrs>().groups;
  if (groups.empty()) {
    groups.emplace_back();
    for (int64_t c = 0; c < cores; ++c) {
      groups[0].push_back(c);
    }
  }
  const auto fail = [&] {
    throw Error(
        "groups of cores must be closed under exchange of the core, x or y bits, such as "
        "[0..7], [[0,1],[2,3],..] or [[0,2,4,6],[1,3,5,7]]",
        "all_reduce", op.loc);
  };
  std::vector<int64_t> basis;
  std::vector<int64_t> span{0};
  for (const int64_t member : groups[0]) {
    const int64_t mask = member ^ groups[0][0];
    if (std::find(span.begin(), span.end(), mask) == span.end()) {
      const size_t n = span.size();
      for (size_t i = 0; i < n; ++i) {
        span.push_back(span[i] ^ mask);
      }
      basis.push_back(mask);
    }
  }
  std::sort(span.begin(), span.end());
  int64_t covered = 0;
  for (const auto& group : groups) {
    covered += static_cast<int64_t>(group.size());
    std::vector<int64_t> masks;
    for (const int64_t member : group) {
      masks.push_back(member ^ group[0]);
    }
    std::sort(masks.begin(), masks.end());
    if (masks != span) {
      fail();
    }
  }
  if (covered != cores) {
    fail();
  }
  for (size_t i = 0; i < basis.size(); ++i) {
    for (size_t j = 0; j < basis.size(); ++j) {
      std::sort(basis.begin(), basis.end());
      if (i != j && ((basis[j] >> top_bit(basis[i])) & 1) != 0) {
        basis[j] ^= basis[i];
      }
    }
  }
  std::sort(basis.begin(), basis.end());
  Exchange e;
  e.masks = basis;
  for (const int64_t m : basis) {
    e.bits.push_back(top_bit(m));
  }
  return e;
}

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

}  // namespace

// A bucket (or a part of one) in VMEM.
struct ReducePiece {
  const Exchange* exchange = nullptr;
  int64_t bucket = 0, bytes = 0, elem_bytes = 4;
  uint8_t type = 0;
  int program = -1;
  uint32_t id = 0;
  std::vector<int64_t> landing;    // per stage
  std::vector<int> granted, back;  // items that grant the landing areas and the way back
  int64_t own = 0;                 // where the running sum lies
};

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
  c.head.signal[0] = {static_cast<uint8_t>(channel_semaphores(link.channel)), 3, 1,
                      static_cast<uint8_t>(link.peer)};
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
  c.head.wait[0] = {static_cast<uint8_t>(sem), 3, 1};
  c.head.signal[0] = {static_cast<uint8_t>(sem + 1), 3, 1, static_cast<uint8_t>(link.peer)};
  Command command;
  command.body = c;
  command.windows = {reads};
  listing.append(std::move(command));
}

void Emitter::receive(const Link& link, const MemRange& range, int granted, uint32_t id) {
  auto c = make_command<spec::NopCommand>(spec::Opcode::kNop, spec::Queue::kVpu, id);
  c.head.wait[0] = {static_cast<uint8_t>(channel_semaphores(link.channel) + 1), 3, 1};
  Command command;
  command.body = c;
  command.windows = {range};
  command.implies = granted;
  listing.append(std::move(command));
}

// out = a (op) b, dense. Windows stand in for addresses with a register.
void Emitter::combine(const ReducePiece& p, const spec::Addr& a, const spec::Addr& b,
                      const spec::Addr& out, int64_t bytes, std::vector<MemRange> windows) {
  const int64_t count = bytes / p.elem_bytes;
  auto c = make_command<spec::VpuKernelCommand>(spec::Opcode::kVpuKernel, spec::Queue::kVpu, p.id);
  c.head.flags = 1;
  c.row_loop = 255;
  c.col_loop = 3;
  c.loops = {1, 1, 1, static_cast<uint32_t>((count + 1023) / 1024)};
  c.rows = 1;
  c.cols = static_cast<uint32_t>(count);
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

// Partner and half of every stage. Stages 1 and 2 of all eight cores change places on odd cores:
// t = (a xor b) and odd gives a xor t or b xor t.
void Emitter::stage_registers(const Exchange& e) {
  using spec::ScalarOp;
  for (size_t s = 0; s < e.masks.size(); ++s) {
    const int bit = kStageBitRegister + static_cast<int>(s);
    const int peer = kStagePeerRegister + static_cast<int>(s);
    listing.append(ScalarOp::kShri, bit, kPartitionRegister, 0, e.bits[s]);
    listing.append(ScalarOp::kAndi, bit, bit, 0, 1);
    listing.append(ScalarOp::kXori, peer, kPartitionRegister, 0, static_cast<int32_t>(e.masks[s]));
  }
  if (e.masks != std::vector<int64_t>{1, 2, 4}) {
    return;
  }
  for (const int pair : {kStageBitRegister + 1, kStagePeerRegister + 1}) {
    listing.append(ScalarOp::kAndi, kTemporaryRegister + 1, kPartitionRegister, 0, 1);
    listing.append(ScalarOp::kSub, kTemporaryRegister + 1, 0, kTemporaryRegister + 1, 0);
    listing.append(ScalarOp::kXor, kTemporaryRegister, pair, pair + 1, 0);
    listing.append(ScalarOp::kAnd, kTemporaryRegister, kTemporaryRegister, kTemporaryRegister + 1,
                   0);
    listing.append(ScalarOp::kXor, pair, pair, kTemporaryRegister, 0);
    listing.append(ScalarOp::kXor, pair + 1, pair + 1, kTemporaryRegister, 0);
  }
}

// Offsets of one size of piece: which half this core keeps, and where its part lies in the piece.
void Emitter::half_registers(const Exchange& e, int64_t bytes) {
  using spec::ScalarOp;
  for (size_t s = 0; s < e.masks.size(); ++s) {
    const int n = static_cast<int>(s);
    const int keep = kKeepRegister + n, sent = kSendRegister + n, whole = kWholeRegister + n;
    const auto half = static_cast<int32_t>(bytes >> (s + 1));
    listing.append(ScalarOp::kMuli, keep, kStageBitRegister + n, 0, half);
    listing.append(ScalarOp::kXori, sent, kStageBitRegister + n, 0, 1);
    listing.append(ScalarOp::kMuli, sent, sent, 0, half);
    if (s == 0) {
      listing.append(ScalarOp::kAddi, whole, keep, 0, 0);
    } else {
      listing.append(ScalarOp::kAdd, whole, whole - 1, keep, 0);
    }
  }
}

Emitter::Link Emitter::stage_link(size_t stage) {
  return {kStageChannel + static_cast<int64_t>(stage),
          kStagePeerRegister + static_cast<int>(stage)};
}

// Stage s < n of halving, or stage s - n of the way back: sends.
void Emitter::halving_send(ReducePiece& p, size_t s) {
  const size_t n = p.exchange->masks.size();
  if (s < n) {
    const int64_t bytes = p.bytes >> (s + 1);
    send(stage_link(s), offset_by(vmem_addr(p.own), kSendRegister + static_cast<int>(s)),
         vmem_addr(p.landing[s]), bytes, p.elem_bytes, vmem_range(p.own, 2 * bytes, false), p.id);
    return;
  }
  const size_t back = 2 * n - 1 - s;
  const spec::Addr part = offset_by(vmem_addr(p.bucket), kWholeRegister + static_cast<int>(back));
  send(stage_link(back), part, part, p.bytes >> (back + 1), p.elem_bytes,
       vmem_range(p.bucket, p.bytes, false), p.id);
}

// The other side of the same stage: the arrival, and the sum on the way down.
void Emitter::halving_receive(ReducePiece& p, size_t s) {
  const size_t n = p.exchange->masks.size();
  const MemRange write_all = vmem_range(p.bucket, p.bytes, true);
  if (s >= n) {
    const size_t back = 2 * n - 1 - s;
    receive(stage_link(back), write_all, p.back[back], p.id);
    return;
  }
  const int64_t bytes = p.bytes >> (s + 1), there = p.landing[s];
  const MemRange source = vmem_range(p.own, 2 * bytes, false);
  receive(stage_link(s), vmem_range(there, bytes, true), p.granted[s], p.id);
  const bool last = s + 1 == n;
  const spec::Addr kept = offset_by(vmem_addr(p.own), kKeepRegister + static_cast<int>(s));
  // The last sum goes home; before that, sums replace what arrived.
  const spec::Addr out = last ? offset_by(vmem_addr(p.bucket), kWholeRegister + static_cast<int>(s))
                              : vmem_addr(there);
  combine(p, kept, vmem_addr(there), out, bytes,
          last ? std::vector{source, write_all} : std::vector{source});
  if (s == 0) {  // nothing of the bucket is needed any more
    for (size_t back = 0; back < n; ++back) {
      p.back.push_back(grant(stage_link(back), write_all, p.id));
    }
  }
  p.own = there;
}

// Pieces go through the stages one behind the other; all sends of a round stand before its
// arrivals.
void Emitter::exchange_halving(std::vector<ReducePiece>& pieces) {
  const Exchange& e = *pieces[0].exchange;
  const size_t stages = e.masks.size(), steps = 2 * stages;
  stage_registers(e);
  half_registers(e, pieces[0].bytes);
  for (ReducePiece& p : pieces) {
    for (size_t s = 0; s < stages; ++s) {
      const int64_t bytes = p.bytes >> (s + 1);
      p.landing.push_back(take(bytes));
    }
  }
  for (ReducePiece& p : pieces) {
    for (size_t s = 0; s < stages; ++s) {
      p.granted.push_back(
          grant(stage_link(s), vmem_range(p.landing[s], p.bytes >> (s + 1), true), p.id));
    }
  }
  for (size_t round = 0; round < pieces.size() + steps - 1; ++round) {
    for (const bool sends : {true, false}) {
      for (size_t i = 0; i < pieces.size(); ++i) {
        if (round < i || round - i >= steps) {
          continue;
        }
        if (sends) {
          halving_send(pieces[i], round - i);
        } else {
          halving_receive(pieces[i], round - i);
        }
      }
    }
  }
}

namespace {

// The part of one value that lies in a piece.
struct Share {
  size_t value = 0;  // index into reads and writes of the kernel
  int64_t from = 0, bytes = 0;
  int64_t at = 0;  // in the piece
};

std::vector<std::vector<Share>> cut_pieces(const Kernel& k, int64_t limit) {
  std::vector<std::vector<Share>> pieces;
  int64_t used = limit;  // opens a piece at once
  for (size_t i = 0; i < k.reads.size(); ++i) {
    const int64_t total = k.reads[i]->type.bytes();
    for (int64_t from = 0; from < total;) {
      if (used + std::min(total - from, limit) > limit) {
        pieces.emplace_back();
        used = 0;
      }
      const int64_t bytes = std::min(total - from, limit - used);
      pieces.back().push_back({i, from, bytes, used});
      used += bytes;
      from += bytes;
    }
  }
  return pieces;
}

}  // namespace

void Emitter::emit_all_reduce(const Kernel& k) {
  const uint32_t id = op_id(k);
  const Op& op = *k.ops[0];
  const Elem elem = op.operand_type(0).elem;
  const Kind kind = *simple_reducer(*op.regions[0]);
  const Exchange exchange = exchange_of(op, module_.num_cores);
  VpuProgram sum;
  sum.header.registers = 2;
  sum.header.section[kBody] = 4;
  const auto insn = [&](spec::VpuOp o, int rd, int rs1, int rs2, uint32_t imm) {
    sum.code.push_back({static_cast<uint8_t>(o), static_cast<uint8_t>(rd),
                        static_cast<uint8_t>(rs1), static_cast<uint8_t>(rs2), imm});
  };
  insn(spec::VpuOp::kLoad, 0, 0, 0, 0);
  insn(spec::VpuOp::kLoad, 1, 0, 0, 1);
  insn(reduce_op(op, kind, elem), 0, 0, 1, 0);
  insn(spec::VpuOp::kStore, 0, 0, 0, 2);
  const int program = listing.add_program(std::move(sum));

  const int64_t unit = elem_bytes(elem);
  const auto stages = static_cast<int64_t>(exchange.masks.size());
  const int64_t grain = kAlign << stages;
  const int64_t vmem = board_.core.vmem_kib * 1024;
  const int64_t limit = std::max(vmem / 4 / grain, int64_t{1}) * grain;
  for (const std::vector<Share>& shares : cut_pieces(k, limit)) {
    const int64_t used = shares.back().at + shares.back().bytes;
    const bool halving = stages > 0 && used > kSmallBytes;
    const int64_t count = halving ? (used + kPieceBytes - 1) / kPieceBytes : 1;
    ReducePiece p;
    p.exchange = &exchange;
    p.bytes = round_up((used + count - 1) / count, grain);
    p.elem_bytes = unit;
    p.type = static_cast<uint8_t>(isa_elem(elem));
    p.program = program;
    p.id = id;
    int64_t result = 0, bucket = 0;
    std::vector<ReducePiece> pieces;
    try {
      result = bucket = take(p.bytes * count);
      for (int64_t i = 0; i < count; ++i) {
        p.bucket = p.own = bucket + i * p.bytes;
        pieces.push_back(p);
      }
      for (const Share& s : shares) {
        const Buffer& b = buffer(k.reads[s.value]);
        const spec::Addr src = b.vmem >= 0 ? vmem_addr(b.vmem + s.from) : hbm(b, s.from);
        copy_bytes(src, vmem_addr(bucket + s.at), s.bytes, unit, id);
      }
      if (used < p.bytes * count) {
        fill(vmem_addr(bucket + used), unit, (p.bytes * count - used) / unit, 0, id);
      }
      if (halving) {
        exchange_halving(pieces);
      } else if (stages > 0) {
        exchange_doubling(pieces[0]);
        result = pieces[0].own;
      }
    } catch (const VmemFull&) {
      too_large(k);
    }
    std::vector<Buffer*> inside;
    for (const Share& s : shares) {
      Buffer& b = buffer(k.writes[s.value]);
      const bool complete = s.bytes == b.bytes && b.bytes <= resident_limit();
      if (complete) {
        b.vmem = result + s.at;
        inside.push_back(&b);
        if (b.must_store) {
          store(b, id);
        }
      } else {
        give_home(b);
        copy_bytes(vmem_addr(result + s.at), hbm(b, s.from), s.bytes, unit, id);
        b.in_hbm = b.in_hbm || s.from + s.bytes == b.bytes;
      }
    }
    // Buffers inside the bucket share its memory; the rest goes back.
    std::vector<int64_t> areas{bucket};
    for (const ReducePiece& piece : pieces) {
      areas.insert(areas.end(), piece.landing.begin(), piece.landing.end());
    }
    for (const int64_t area : areas) {
      if (area != result || inside.empty()) {
        give(area);
      }
    }
    if (!inside.empty()) {
      share(result, inside);
    }
  }
}

}  // namespace tpu::compiler
