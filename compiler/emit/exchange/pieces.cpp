// all_gather, all_to_all and collective_permute: every core sends its pieces straight to their
// places in memory of the others. Step d of a group pairs position p with p xor d, or, in groups of
// another size than a power of two, sends from p to p + d. So a step is a permutation of all cores;
// what differs between cores (partner, offsets) is looked up by the core number into registers.
// Credits and arrivals have a channel for each permutation: a semaphore is then signalled by one
// core alone, in program order. Cores that send nothing in a collective_permute send zeros to
// those that receive nothing.
#include <algorithm>

#include "emit/context.hpp"

namespace tpu::compiler {

namespace {

using spec::ScalarOp;

constexpr int64_t kZeroPieceBytes = 512 * 1024;
constexpr int64_t kMostExchanged = UINT32_MAX;  // along one stride of a command
constexpr int64_t kPage = 4096;                 // pieces begin where pages do
// Temporaries: a command takes their value at issue.
constexpr int kSrc = kFirstOffsetRegister + 1;
constexpr int kDst = kFirstOffsetRegister + 2;

// By core: its position in its group, and the members of that group.
struct Members {
  std::vector<int64_t> position;
  std::vector<const std::vector<int64_t>*> group;

  Members(const Groups& groups, int64_t cores)
      : position(static_cast<size_t>(cores)), group(static_cast<size_t>(cores)) {
    for (const auto& g : groups) {
      for (size_t p = 0; p < g.size(); ++p) {
        position[static_cast<size_t>(g[p])] = static_cast<int64_t>(p);
        group[static_cast<size_t>(g[p])] = &g;
      }
    }
  }
  // Target of each core in step d.
  std::vector<int64_t> step(int64_t d) const {
    std::vector<int64_t> to;
    for (size_t c = 0; c < position.size(); ++c) {
      const auto n = static_cast<int64_t>(group[c]->size());
      const bool power = (n & (n - 1)) == 0;
      const int64_t p = power ? position[c] ^ d : (position[c] + d) % n;
      to.push_back((*group[c])[static_cast<size_t>(p)]);
    }
    return to;
  }
};

}  // namespace

// Pieces of one operand of an all_gather or all_to_all: strides of a piece on both sides, and what
// the positions of receiver (source side) and sender (destination side) stand for in bytes.
struct PieceLayout {
  std::vector<CopyDim> dims;
  int64_t src_step = 0, dst_step = 0;
};

PieceLayout piece_layout(const Op& op, size_t i) {
  const auto& a = op.as<CollectiveAttrs>();
  const auto n = static_cast<int64_t>(a.groups[0].size());
  const int64_t bytes = elem_bytes(op.type(i).elem);
  Dims piece = op.operand_type(i).dims;
  const Dims src = row_major_strides(piece), dst = row_major_strides(op.type(i).dims);
  PieceLayout p;
  if (op.kind == Kind::kAllToAll) {
    const auto split = static_cast<size_t>(a.dim), concat = static_cast<size_t>(a.concat_dim);
    piece[split] /= n;
    p.src_step = piece[split] * src[split] * bytes;
    p.dst_step = piece[concat] * dst[concat] * bytes;
  } else {
    const auto dim = static_cast<size_t>(a.dim);
    p.dst_step = piece[dim] * dst[dim] * bytes;
  }
  for (size_t d = 0; d < piece.size(); ++d) {
    p.dims.push_back({piece[d], src[d] * bytes, dst[d] * bytes});
  }
  for (const CopyDim& d : merged(p.dims)) {
    if (d.n > kMostExchanged) {
      throw Error("an exchange of " + to_string(op.operand_type(i)) + " moves " +
                      std::to_string(d.n) + " elements along one stride, a command at most " +
                      std::to_string(kMostExchanged) + "; exchange less at a time",
                  source_name(op.kind), op.loc);
    }
  }
  if (std::max(p.src_step, p.dst_step) > INT32_MAX) {
    throw Error("a piece of more than 2 GiB for each core is not supported", source_name(op.kind),
                op.loc);
  }
  return p;
}

void exchange_pieces(EmitContext& ctx, const Op& op, size_t i, const Buffer& in, const Buffer& out,
                     uint32_t id) {
  const auto& a = op.as<CollectiveAttrs>();
  const Members members(a.groups, ctx.module.num_cores);
  const auto n = static_cast<int64_t>(a.groups[0].size());
  const PieceLayout piece = piece_layout(op, i);
  const int64_t bytes = elem_bytes(op.type(i).elem);
  const MemRange reads = whole_range(ctx, in, false), writes = whole_range(ctx, out, true);
  std::vector<int> granted;
  for (int64_t d = 1; d < n; ++d) {
    granted.push_back(
        ctx.channels.grant(ctx.channels.permutation_link(members.step(d), true), writes, id));
  }
  const auto place = [](const Buffer& b, const spec::Addr& home, int reg, int64_t step) {
    spec::Addr addr = b.vmem >= 0 ? vmem_addr(b.vmem) : home;
    addr.reg = static_cast<uint8_t>(step == 0 ? 0 : reg);
    return addr;
  };
  const auto move = [&](const Link* link, const std::vector<int64_t>& to) {
    std::vector<int64_t> receiver;
    for (const int64_t c : to) {
      receiver.push_back(members.position[static_cast<size_t>(c)]);
    }
    if (piece.src_step != 0) {
      ctx.channels.look_up(kSrc, receiver);
      ctx.sink.insn(ScalarOp::kMuli, kSrc, kSrc, 0, static_cast<int32_t>(piece.src_step));
    }
    ctx.channels.look_up(kDst, members.position);
    ctx.sink.insn(ScalarOp::kMuli, kDst, kDst, 0, static_cast<int32_t>(piece.dst_step));
    std::vector<MemRange> windows{reads};
    if (link == nullptr) {
      windows.push_back(writes);
    }
    ctx.channels.move_box(
        link, place(in, in.vmem >= 0 ? spec::Addr{} : home_of(in), kSrc, piece.src_step),
        place(out, out.vmem >= 0 ? spec::Addr{} : home_of(out), kDst, piece.dst_step), bytes,
        piece.dims, windows, id);
  };
  for (int64_t d = 1; d < n; ++d) {
    const std::vector<int64_t> to = members.step(d);
    const Link link = ctx.channels.permutation_link(to, false);
    move(&link, to);
  }
  move(nullptr, members.step(0));
  for (int64_t d = 1; d < n; ++d) {
    ctx.channels.receive({ctx.channels.permutation_channel(members.step(d)), 0}, writes,
                         granted[static_cast<size_t>(d) - 1], id);
  }
}

// The pairs made a permutation of all cores: the rest is paired in ascending order.
bool permute(EmitContext& ctx, const Op& op, const Buffer& in, const Buffer& out, uint32_t id) {
  const auto cores = static_cast<size_t>(ctx.module.num_cores);
  std::vector<int64_t> to(cores, -1), sends(cores, 0);
  std::vector<bool> receives(cores, false);
  for (const auto& p : op.as<PermuteAttrs>().pairs) {
    to[static_cast<size_t>(p[0])] = p[1];
    sends[static_cast<size_t>(p[0])] = 1;
    receives[static_cast<size_t>(p[1])] = true;
  }
  bool partial = false;
  for (size_t c = 0, next = 0; c < cores; ++c) {
    if (to[c] < 0) {
      while (receives[next]) {
        ++next;
      }
      to[c] = static_cast<int64_t>(next++);
      partial = true;
    }
  }
  const MemRange reads = whole_range(ctx, in, false), writes = whole_range(ctx, out, true);
  const int64_t bytes = elem_bytes(op.type().elem);
  const spec::Addr src = place_of(in);
  const spec::Addr dst = place_of(out);
  const int64_t piece =
      partial ? std::min({in.bytes, kZeroPieceBytes, ctx.board.core.vmem_kib * 1024 / 8}) / bytes *
                    bytes
              : std::min(in.bytes, kMostExchanged / kPage * kPage * bytes);
  int64_t zero = -1, staged[2] = {-1, -1};
  if (partial) {
    zero = take(ctx, piece).value_or(-1);
    if (zero < 0) {
      return false;
    }
    ctx.sink.fill(vmem_addr(zero), bytes, piece / bytes, 0, id);
    for (int64_t& s : staged) {
      s = take(ctx, piece).value_or(-1);
      if (s < 0) {
        return false;
      }
    }
  }
  for (int64_t at = 0, number = 0; at < in.bytes; at += piece, ++number) {
    const int64_t now = std::min(piece, in.bytes - at);
    spec::Addr from = src, there = dst;
    from.offset += at;
    there.offset += at;
    MemRange landing = writes;
    landing.lo += at;
    landing.hi = landing.lo + now;
    const int granted = ctx.channels.grant(ctx.channels.permutation_link(to, true), landing, id);
    std::vector<MemRange> windows{reads};
    if (partial) {
      const int64_t slot = staged[number % 2];
      ctx.sink.copy(from, vmem_addr(slot), bytes, {{now / bytes, bytes, bytes}}, id);
      ctx.channels.look_up(kSrc, sends);
      ctx.sink.insn(ScalarOp::kMuli, kSrc, kSrc, 0, static_cast<int32_t>(slot - zero));
      from = vmem_addr(zero);
      from.reg = kSrc;
      windows.clear();
      for (const int64_t area : {zero, slot}) {
        MemRange r;
        r.lo = area;
        r.hi = area + now;
        windows.push_back(r);
      }
    }
    const Link link = ctx.channels.permutation_link(to, false);
    ctx.channels.move_box(&link, from, there, bytes, {{now / bytes, bytes, bytes}}, windows, id);
    ctx.channels.receive({ctx.channels.permutation_channel(to), 0}, landing, granted, id);
  }
  for (const int64_t area : {zero, staged[0], staged[1]}) {
    if (area >= 0) {
      ctx.memory.give(area);
    }
  }
  return true;
}

bool emit_exchange(EmitContext& ctx, const Kernel& k) {
  const uint32_t id = ctx.ops.id(k);
  const Op& op = *k.ops[0];
  for (size_t i = 0; i < k.reads.size(); ++i) {
    const Buffer& in = ctx.memory.at(k.reads[i]);
    Buffer& out = ctx.memory.at(op.result(i));
    ctx.memory.pin({&in, &out});
    place_result(ctx, out);
    if (op.kind != Kind::kCollectivePermute) {
      exchange_pieces(ctx, op, i, in, out, id);
    } else if (!permute(ctx, op, in, out, id)) {
      return false;
    }
    finish_result(ctx, out, id);
  }
  ctx.memory.unpin();
  return true;
}

}  // namespace tpu::compiler
