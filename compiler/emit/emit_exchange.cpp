// all_gather, all_to_all and collective_permute: every core sends its pieces straight to their
// places in memory of the others. Step d of a group pairs position p with p xor d, or, in groups of
// another size than a power of two, sends from p to p + d. So a step is a permutation of all cores;
// what differs between cores (partner, offsets) is looked up by the core number into registers.
// Credits and arrivals have a channel for each permutation: a semaphore is then signalled by one
// core alone, in program order. Cores that send nothing in a collective_permute send zeros to
// those that receive nothing.
#include <algorithm>

#include "emit/emitter.hpp"

namespace tpu::compiler {

namespace {

using spec::ScalarOp;

constexpr int64_t kPermutationChannel = int64_t{1} << 40;  // above those of emit_collective.cpp
constexpr int64_t kZeroPieceBytes = 512 * 1024;
constexpr int64_t kMostElements = UINT32_MAX;  // along one stride of a command
constexpr int64_t kPage = 4096;                // pieces begin where pages do
constexpr int kPeer = kFirstOffsetRegister;    // temporaries: a command takes their value at issue
constexpr int kSrc = kFirstOffsetRegister + 1;
constexpr int kDst = kFirstOffsetRegister + 2;
constexpr int kScratch = kFirstOffsetRegister + 3;

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

std::vector<int64_t> inverse(const std::vector<int64_t>& to) {
  std::vector<int64_t> from(to.size());
  for (size_t c = 0; c < to.size(); ++c) {
    from[static_cast<size_t>(to[c])] = static_cast<int64_t>(c);
  }
  return from;
}

}  // namespace

// reg = values[core].
void Emitter::look_up(int reg, const std::vector<int64_t>& values) {
  listing.append(ScalarOp::kLi, reg, 0, 0, static_cast<int32_t>(values[0]));
  for (size_t c = 1; c < values.size(); ++c) {
    const int64_t more = values[c] - values[0];
    if (more == 0) {
      continue;
    }
    listing.append(ScalarOp::kLi, kScratch, 0, 0, static_cast<int32_t>(c));
    listing.append(ScalarOp::kSeq, kScratch, kScratch, kPartitionRegister, 0);
    listing.append(ScalarOp::kMuli, kScratch, kScratch, 0, static_cast<int32_t>(more));
    listing.append(ScalarOp::kAdd, reg, reg, kScratch, 0);
  }
}

// What names the semaphores of a permutation: the mask if it is an xor with one, else a number.
int64_t Emitter::permutation_channel(const std::vector<int64_t>& to) {
  const int64_t mask = to[0];
  bool is_mask = mask != 0;
  for (size_t c = 0; c < to.size(); ++c) {
    is_mask = is_mask && to[c] == (static_cast<int64_t>(c) ^ mask);
  }
  const auto number = static_cast<int64_t>(permutations_.size());
  return is_mask ? mask : kPermutationChannel + permutations_.emplace(to, number).first->second;
}

// The partner whom this core sends to or, `back`, that sends to this core. The register holds until
// the next call.
Emitter::Link Emitter::permutation_link(const std::vector<int64_t>& to, bool back) {
  const int64_t channel = permutation_channel(to);
  if (channel < kPermutationChannel) {
    return {channel, peer_register(channel)};
  }
  look_up(kPeer, back ? inverse(to) : to);
  return {channel, kPeer};
}

MemRange Emitter::whole_range(const Buffer& b, bool write) const {
  MemRange r;
  r.write = write;
  if (b.vmem >= 0) {
    r.lo = b.vmem;
  } else {
    r.space = spec::Space::kHbm;
    r.slot = listing.root_slot(b.slot);
    r.lo = b.offset;
  }
  r.hi = r.lo + b.bytes;
  return r;
}

// A box from `src` to `dst`, on this core or (with a link) on the partner, as few commands as its
// strides allow.
void Emitter::move_box(const Link* link, const spec::Addr& src, const spec::Addr& dst,
                       int64_t elem_bytes, const std::vector<CopyDim>& dims,
                       const std::vector<MemRange>& windows, uint32_t id) {
  const std::vector<CopyDim> all = merged(dims);
  const size_t split = all.size() > 5 ? all.size() - 5 : 0;
  int64_t outer = 1;
  for (size_t i = 0; i < split; ++i) {
    outer *= all[i].n;
  }
  const bool to_hbm = static_cast<spec::Space>(dst.space) == spec::Space::kHbm;
  const spec::Queue local = to_hbm ? spec::Queue::kDmaOut : spec::Queue::kDmaIn;
  for (int64_t n = 0; n < outer; ++n) {
    auto c = make_command<spec::DmaCommand>(spec::Opcode::kDma,
                                            link == nullptr ? local : spec::Queue::kDmaRemote, id);
    c.src = src;
    c.dst = dst;
    for (int64_t i = static_cast<int64_t>(split) - 1, rest = n; i >= 0; --i) {
      const CopyDim& d = all[static_cast<size_t>(i)];
      c.src.offset += rest % d.n * d.src;
      c.dst.offset += rest % d.n * d.dst;
      rest /= d.n;
    }
    c.elem_bytes = static_cast<uint32_t>(elem_bytes);
    c.counts.fill(1);
    for (size_t i = split; i < all.size(); ++i) {
      const size_t at = 5 - all.size() + i;
      c.counts[at] = static_cast<uint32_t>(all[i].n);
      c.src_strides[at] = all[i].src;
      c.dst_strides[at] = all[i].dst;
    }
    if (link != nullptr) {
      const auto sem = static_cast<uint8_t>(channel_semaphores(link->channel));
      const auto peer = static_cast<uint8_t>(link->peer);
      c.peer_reg = peer;
      if (n == 0) {
        c.head.wait[0] = taking_wait(sem);
      }
      if (n + 1 == outer) {
        c.head.signal[0] = remote_signal(sem + 1, peer);
      }
    }
    Command command;
    command.body = c;
    command.windows = windows;
    listing.append(std::move(command));
  }
}

// Pieces of one operand of an all_gather or all_to_all: strides of a piece on both sides, and what
// the positions of receiver (source side) and sender (destination side) stand for in bytes.
struct Emitter::PieceLayout {
  std::vector<CopyDim> dims;
  int64_t src_step = 0, dst_step = 0;
};

Emitter::PieceLayout Emitter::piece_layout(const Op& op, size_t i) {
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
    if (d.n > kMostElements) {
      throw Error("an exchange of " + to_string(op.operand_type(i)) + " moves " +
                      std::to_string(d.n) + " elements along one stride, a command at most " +
                      std::to_string(kMostElements) + "; exchange less at a time",
                  source_name(op.kind), op.loc);
    }
  }
  if (std::max(p.src_step, p.dst_step) > INT32_MAX) {
    throw Error("a piece of more than 2 GiB for each core is not supported", source_name(op.kind),
                op.loc);
  }
  return p;
}

void Emitter::exchange_pieces(const Op& op, size_t i, const Buffer& in, const Buffer& out,
                              uint32_t id) {
  const auto& a = op.as<CollectiveAttrs>();
  const Members members(a.groups, module_.num_cores);
  const auto n = static_cast<int64_t>(a.groups[0].size());
  const PieceLayout piece = piece_layout(op, i);
  const int64_t bytes = elem_bytes(op.type(i).elem);
  const MemRange reads = whole_range(in, false), writes = whole_range(out, true);
  std::vector<int> granted;
  for (int64_t d = 1; d < n; ++d) {
    granted.push_back(grant(permutation_link(members.step(d), true), writes, id));
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
      look_up(kSrc, receiver);
      listing.append(ScalarOp::kMuli, kSrc, kSrc, 0, static_cast<int32_t>(piece.src_step));
    }
    look_up(kDst, members.position);
    listing.append(ScalarOp::kMuli, kDst, kDst, 0, static_cast<int32_t>(piece.dst_step));
    std::vector<MemRange> windows{reads};
    if (link == nullptr) {
      windows.push_back(writes);
    }
    move_box(link, place(in, in.vmem >= 0 ? spec::Addr{} : hbm(in), kSrc, piece.src_step),
             place(out, out.vmem >= 0 ? spec::Addr{} : hbm(out), kDst, piece.dst_step), bytes,
             piece.dims, windows, id);
  };
  for (int64_t d = 1; d < n; ++d) {
    const std::vector<int64_t> to = members.step(d);
    const Link link = permutation_link(to, false);
    move(&link, to);
  }
  move(nullptr, members.step(0));
  for (int64_t d = 1; d < n; ++d) {
    receive({permutation_channel(members.step(d)), 0}, writes, granted[static_cast<size_t>(d) - 1],
            id);
  }
}

// The pairs made a permutation of all cores: the rest is paired in ascending order.
void Emitter::permute(const Op& op, const Buffer& in, const Buffer& out, uint32_t id) {
  const auto cores = static_cast<size_t>(module_.num_cores);
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
  const MemRange reads = whole_range(in, false), writes = whole_range(out, true);
  const int64_t bytes = elem_bytes(op.type().elem);
  const spec::Addr src = where(in);
  const spec::Addr dst = where(out);
  const int64_t piece =
      partial
          ? std::min({in.bytes, kZeroPieceBytes, board_.core.vmem_kib * 1024 / 8}) / bytes * bytes
          : std::min(in.bytes, kMostElements / kPage * kPage * bytes);
  int64_t zero = -1, staged[2] = {-1, -1};
  if (partial) {
    zero = take(piece);
    fill(vmem_addr(zero), bytes, piece / bytes, 0, id);
    for (int64_t& s : staged) {
      s = take(piece);
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
    const int granted = grant(permutation_link(to, true), landing, id);
    std::vector<MemRange> windows{reads};
    if (partial) {
      const int64_t slot = staged[number % 2];
      copy(from, vmem_addr(slot), bytes, {{now / bytes, bytes, bytes}}, id);
      look_up(kSrc, sends);
      listing.append(ScalarOp::kMuli, kSrc, kSrc, 0, static_cast<int32_t>(slot - zero));
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
    const Link link = permutation_link(to, false);
    move_box(&link, from, there, bytes, {{now / bytes, bytes, bytes}}, windows, id);
    receive({permutation_channel(to), 0}, landing, granted, id);
  }
  for (const int64_t area : {zero, staged[0], staged[1]}) {
    if (area >= 0) {
      give(area);
    }
  }
}

void Emitter::emit_exchange(const Kernel& k) {
  const uint32_t id = op_id(k);
  const Op& op = *k.ops[0];
  for (size_t i = 0; i < k.reads.size(); ++i) {
    const Buffer& in = buffer(k.reads[i]);
    Buffer& out = buffer(op.result(i));
    pinned_ = {&in, &out};
    place_result(out);
    try {
      if (op.kind == Kind::kCollectivePermute) {
        permute(op, in, out, id);
      } else {
        exchange_pieces(op, i, in, out, id);
      }
    } catch (const VmemFull&) {
      too_large(k);
    }
    finish_result(out, id);
  }
  pinned_.clear();
}

}  // namespace tpu::compiler
