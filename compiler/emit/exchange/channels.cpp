#include "emit/exchange/channels.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "emit/registers.hpp"

namespace tpu::compiler {

namespace {

// Channels of stages and of permutations; below: masks.
constexpr int64_t kStageChannel = int64_t{1} << 32;
constexpr int64_t kPermutationChannel = int64_t{1} << 40;
constexpr int kPeer = kFirstOffsetRegister;  // temporaries: a command takes their value at issue
constexpr int kScratch = kFirstOffsetRegister + 3;
constexpr int kPeers = 2;  // registers of a link that is looked up; behind them its scratch

std::vector<int64_t> inverse(const std::vector<int64_t>& to) {
  std::vector<int64_t> from(to.size());
  for (size_t c = 0; c < to.size(); ++c) {
    from[static_cast<size_t>(to[c])] = static_cast<int64_t>(c);
  }
  return from;
}

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

Channels::Channels(CommandSink& sink, int semaphores, const std::vector<int>& cores)
    : sink_(sink), first_semaphore_(semaphores), cores_(cores), in_order_([&] {
        bool in_order = true;
        for (size_t p = 0; p < cores.size(); ++p) {
          in_order = in_order && cores[p] == static_cast<int>(p);
        }
        return in_order;
      }()) {}

void Channels::set_peer(int reg, int64_t mask) {
  if (in_order_) {
    sink_.insn(spec::ScalarOp::kXori, reg, kPartitionRegister, 0, static_cast<int32_t>(mask));
    return;
  }
  std::vector<int64_t> partners;
  for (size_t p = 0; p < cores_.size(); ++p) {
    partners.push_back(static_cast<int64_t>(p) ^ mask);
  }
  look_up_core(reg, partners);
}

int Channels::peer_register(int64_t mask) {
  auto it = peers_.find(mask);
  if (it == peers_.end()) {
    const int reg = kFirstPeerRegister + static_cast<int>(peers_.size());
    if (reg == kFirstOffsetRegister) {  // all are given: kPeer serves the next command alone
      set_peer(kPeer, mask);
      return kPeer;
    }
    set_peer(reg, mask);
    it = peers_.emplace(mask, reg).first;
  }
  return it->second;
}

// Two semaphores per channel, from the top of the board's: credits, then arrivals.
int Channels::semaphores(int64_t channel) {
  auto it = semaphores_.find(channel);
  if (it == semaphores_.end()) {
    first_semaphore_ -= 2;
    it = semaphores_.emplace(channel, first_semaphore_).first;
  }
  return it->second;
}

int Channels::grant(const Link& link, const MemRange& range, uint32_t id) {
  auto c = make_command<spec::NopCommand>(spec::Opcode::kNop, spec::Queue::kDmaRemote, id);
  c.head.signal[0] = remote_signal(semaphores(link.channel), link.peer);
  Command command;
  command.body = c;
  command.windows = {range};
  return sink_.append(std::move(command));
}

void Channels::send(const Link& link, const spec::Addr& src, const spec::Addr& dst, int64_t bytes,
                    int64_t unit, const MemRange& reads, uint32_t id) {
  const int sem = semaphores(link.channel);
  auto c = make_command<spec::DmaCommand>(spec::Opcode::kDma, spec::Queue::kDmaRemote, id);
  c.src = src;
  c.dst = dst;
  c.elem_bytes = static_cast<uint32_t>(unit);
  c.counts = {1, 1, 1, 1, static_cast<uint32_t>(bytes / unit)};
  c.src_strides[4] = c.dst_strides[4] = unit;
  const int peer = ready_peer(link, 0);
  c.peer_reg = static_cast<uint8_t>(peer);
  c.head.wait[0] = taking_wait(sem);
  c.head.signal[0] = remote_signal(sem + 1, peer);
  Command command;
  command.body = c;
  command.windows = {reads};
  sink_.append(std::move(command));
}

void Channels::receive(const Link& link, std::vector<MemRange> ranges, int granted, uint32_t id) {
  auto c = make_command<spec::NopCommand>(spec::Opcode::kNop, spec::Queue::kVpu, id);
  c.head.wait[0] = taking_wait(semaphores(link.channel) + 1);
  Command command;
  command.body = c;
  command.windows = std::move(ranges);
  command.implies = {granted};
  sink_.append(std::move(command));
}

namespace {

// Boards with fewer keep the programs that they have.
constexpr size_t kFewCores = 32;

// values[c] = values[0] + the sum of weight[b] over the bits b of c; none where it is not so.
std::optional<std::vector<int64_t>> weights_of_bits(const std::vector<int64_t>& values) {
  std::vector<int64_t> weights;
  for (size_t bit = 1; bit < values.size(); bit *= 2) {
    weights.push_back(values[bit] - values[0]);
  }
  for (size_t c = 1; c < values.size(); ++c) {
    const size_t low = c & (c - 1);  // without its lowest bit
    const auto bit = static_cast<size_t>(std::countr_zero(c));
    if (values[c] - values[low] != weights[bit]) {
      return std::nullopt;
    }
  }
  return weights;
}

// Bits of a core's number that count as one number, from `first` on.
struct Field {
  int first, bits;
  int64_t weight;
};

std::vector<Field> fields_of(const std::vector<int64_t>& weights) {
  std::vector<Field> fields;
  for (size_t b = 0; b < weights.size(); ++b) {
    if (weights[b] == 0) {
      continue;
    }
    if (!fields.empty()) {
      Field& last = fields.back();
      if (last.first + last.bits == static_cast<int>(b) && last.weight << last.bits == weights[b]) {
        ++last.bits;
        continue;
      }
    }
    fields.push_back({static_cast<int>(b), 1, weights[b]});
  }
  return fields;
}

// Cores at which values[c] - slope * c changes, and by how much.
std::vector<std::pair<int64_t, int64_t>> jumps_of(const std::vector<int64_t>& values,
                                                  int64_t slope) {
  std::vector<std::pair<int64_t, int64_t>> jumps;
  for (size_t c = 1; c < values.size(); ++c) {
    if (const int64_t jump = values[c] - values[c - 1] - slope; jump != 0) {
      jumps.emplace_back(static_cast<int64_t>(c), jump);
    }
  }
  return jumps;
}

}  // namespace

// The register of the link's partner, for the next command, whose signal `number` goes there.
int Channels::ready_peer(const Link& link, int number) {
  if (link.partners == nullptr) {
    return link.peer;
  }
  std::vector<int64_t> cores;
  for (const int64_t partner : *link.partners) {
    cores.push_back(cores_[static_cast<size_t>(partner)]);
  }
  look_up_many(link.peer + number, cores, link.peer + kPeers);
  return link.peer + number;
}

// Of many cores (two or more): by a mask of even cores and one of odd ones, by the bits of the
// core's number, or by where a line or a constant jumps. A
// table in SMEM would be shorter for values without any order, but no collective has them.
void Channels::look_up_many(int reg, const std::vector<int64_t>& values, int scratch) {
  using spec::ScalarOp;
  const int64_t of_even = values[0], of_odd = values[1] ^ 1;
  const bool flips = std::ranges::all_of(values, [&, c = int64_t{0}](int64_t value) mutable {
    const int64_t mask = (c & 1) == 0 ? of_even : of_odd;
    return value == (c++ ^ mask);
  });
  if (flips && of_even == of_odd) {
    sink_.insn(ScalarOp::kXori, reg, kPartitionRegister, 0, static_cast<int32_t>(of_even));
    return;
  }
  if (flips) {
    sink_.insn(ScalarOp::kAndi, scratch, kPartitionRegister, 0, 1);
    sink_.insn(ScalarOp::kMuli, scratch, scratch, 0, static_cast<int32_t>(of_even ^ of_odd));
    sink_.insn(ScalarOp::kXori, scratch, scratch, 0, static_cast<int32_t>(of_even));
    sink_.insn(ScalarOp::kXor, reg, kPartitionRegister, scratch, 0);
    return;
  }
  if (const auto weights = weights_of_bits(values)) {
    sink_.insn(ScalarOp::kLi, reg, 0, 0, static_cast<int32_t>(values[0]));
    for (const Field& field : fields_of(*weights)) {
      sink_.insn(ScalarOp::kShri, scratch, kPartitionRegister, 0, field.first);
      sink_.insn(ScalarOp::kAndi, scratch, scratch, 0, (1 << field.bits) - 1);
      sink_.insn(ScalarOp::kMuli, scratch, scratch, 0, static_cast<int32_t>(field.weight));
      sink_.insn(ScalarOp::kAdd, reg, reg, scratch, 0);
    }
    return;
  }
  const auto flat = jumps_of(values, 0), line = jumps_of(values, 1);
  const bool slope = line.size() < flat.size();
  if (slope) {
    sink_.insn(ScalarOp::kAddi, reg, kPartitionRegister, 0, static_cast<int32_t>(values[0]));
  } else {
    sink_.insn(ScalarOp::kLi, reg, 0, 0, static_cast<int32_t>(values[0]));
  }
  for (const auto& [core, jump] : slope ? line : flat) {
    sink_.insn(ScalarOp::kLi, scratch, 0, 0, static_cast<int32_t>(core - 1));
    sink_.insn(ScalarOp::kSltu, scratch, scratch, kPartitionRegister, 0);
    sink_.insn(ScalarOp::kMuli, scratch, scratch, 0, static_cast<int32_t>(jump));
    sink_.insn(ScalarOp::kAdd, reg, reg, scratch, 0);
  }
}

void Channels::look_up(int reg, const std::vector<int64_t>& values) {
  if (values.size() > kFewCores) {
    look_up_many(reg, values, kScratch);
    return;
  }
  sink_.insn(spec::ScalarOp::kLi, reg, 0, 0, static_cast<int32_t>(values[0]));
  for (size_t c = 1; c < values.size(); ++c) {
    const int64_t more = values[c] - values[0];
    if (more == 0) {
      continue;
    }
    sink_.insn(spec::ScalarOp::kLi, kScratch, 0, 0, static_cast<int32_t>(c));
    sink_.insn(spec::ScalarOp::kSeq, kScratch, kScratch, kPartitionRegister, 0);
    sink_.insn(spec::ScalarOp::kMuli, kScratch, kScratch, 0, static_cast<int32_t>(more));
    sink_.insn(spec::ScalarOp::kAdd, reg, reg, kScratch, 0);
  }
}

void Channels::look_up_core(int reg, const std::vector<int64_t>& partners) {
  std::vector<int64_t> cores;
  for (const int64_t partner : partners) {
    cores.push_back(cores_[static_cast<size_t>(partner)]);
  }
  look_up(reg, cores);
}

// What names the semaphores of a permutation: the mask if it is an xor with one, else a number.
int64_t Channels::permutation_channel(const std::vector<int64_t>& to) {
  const int64_t mask = to[0];
  bool is_mask = mask != 0;
  for (size_t c = 0; c < to.size(); ++c) {
    is_mask = is_mask && to[c] == (static_cast<int64_t>(c) ^ mask);
  }
  const auto number = static_cast<int64_t>(permutations_.size());
  return is_mask ? mask : kPermutationChannel + permutations_.emplace(to, number).first->second;
}

Link Channels::permutation_link(const std::vector<int64_t>& to, bool back) {
  const int64_t channel = permutation_channel(to);
  if (channel < kPermutationChannel) {
    return {channel, peer_register(channel)};
  }
  look_up_core(kPeer, back ? inverse(to) : to);
  return {channel, kPeer};
}

void Channels::move_box(const Link* link, const spec::Addr& src, const spec::Addr& dst,
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
      const auto sem = static_cast<uint8_t>(semaphores(link->channel));
      const auto peer = static_cast<uint8_t>(link->peer);
      c.peer_reg = peer;
      if (n == 0 && !link->taken) {
        c.head.wait[0] = taking_wait(sem);
      }
      if (n + 1 == outer) {
        c.head.signal[0] = remote_signal(sem + 1, peer);
      }
    }
    Command command;
    command.body = c;
    command.windows = windows;
    sink_.append(std::move(command));
  }
}

void Channels::grant(const std::vector<GrantRequest>& requests, uint32_t id) {
  for (size_t i = 0; i < requests.size(); i += 2) {
    auto c = make_command<spec::NopCommand>(spec::Opcode::kNop, spec::Queue::kDmaRemote, id);
    Command command;
    const size_t n = std::min<size_t>(2, requests.size() - i);
    for (size_t j = 0; j < n; ++j) {
      const GrantRequest& g = requests[i + j];
      const int peer = ready_peer(g.link, static_cast<int>(j));
      c.head.signal[j] = remote_signal(semaphores(g.link.channel), peer);
      command.windows.push_back(g.range);
    }
    command.body = c;
    const int item = sink_.append(std::move(command));
    for (size_t j = 0; j < n; ++j) {
      *requests[i + j].item = item;
    }
  }
}

void Channels::await_arrival(const Link& link, const MemRange& range, int granted) {
  auto& c = std::get<Command>(sink_.listing.items.back());
  auto& wait = c.head().wait;
  const auto free =
      std::find_if(wait.begin(), wait.end(), [](const spec::Wait& w) { return !w.valid(); });
  *free = taking_wait(semaphores(link.channel) + 1);
  c.windows.push_back(range);
  c.implies.push_back(granted);
}

int64_t Channels::stage_channel(const Exchange& e, size_t stage, spec::Queue waiting) {
  const auto number = static_cast<int64_t>(stages_.size());
  const StageKey key{partners(e, stage), waiting};
  return kStageChannel + stages_.emplace(key, number).first->second;
}

}  // namespace tpu::compiler
