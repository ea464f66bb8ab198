// Exchange by halving, as a stream: in every round one piece is loaded, and the pieces on their way
// take one step each. On all cores the first half of a piece goes x before y and the second y
// before x, so that both links of a chip are busy; the sums of eight cores are
// ((0+1)+(2+3))+((4+5)+(6+7)) and ((0+1)+(4+5))+((2+3)+(6+7)). Sums replace what the core had.
// A step is: arrival (and sum) of what was sent `lag` rounds before, grants for the next round,
// sends.
#include "emit/exchange/halving.hpp"

#include <algorithm>

namespace tpu::compiler {

// Step s of halving (s < stages), or of the way back. Exchanges over different groups share the
// channel of a step only if it pairs the same cores and the same queue waits for its arrivals: the
// vector unit sums on the way down, the next send waits on the way back, and what stores the piece
// waits for the last step.
static Link step_link(const HalvingRun& r, int64_t s) {
  const int64_t stages = r.plan.stages(), last = 2 * stages - 1, stage = s < stages ? s : last - s;
  const spec::Queue waiting = s < stages ? spec::Queue::kVpu
                              : s < last ? spec::Queue::kDmaRemote
                                         : spec::Queue::kDmaOut;
  const StageRegisters first(r.plan.exchange);
  const int64_t channel =
      r.channels.stage_channel(r.plan.exchange, static_cast<size_t>(stage), waiting);
  if (first.made) {
    return {channel, first.peer, &r.partners[static_cast<size_t>(stage)]};
  }
  return {channel, first.peer + static_cast<int>(stage)};
}

// Of many stages: what the core holds after each. Odd cores that cross over go by another bit.
static void whole_registers(CommandSink& sink, const HalvingPlan& p) {
  using spec::ScalarOp;
  const Exchange& e = p.exchange;
  const StageRegisters first(e);
  const int odd = first.made_temporary, other = first.sent;
  if (e.crosses_over()) {
    sink.insn(ScalarOp::kAndi, odd, kPartitionRegister, 0, 1);
    sink.insn(ScalarOp::kSub, odd, 0, odd, 0);
  }
  for (size_t s = 0; s < e.stages(); ++s) {
    const int whole = first.whole + static_cast<int>(s);
    const int bit = e.bits[s], bit_of_odd = e.bits[e.mask_of(1, s)];
    sink.insn(ScalarOp::kShri, whole, kPartitionRegister, 0, bit);
    if (bit_of_odd != bit) {
      sink.insn(ScalarOp::kShri, other, kPartitionRegister, 0, bit_of_odd);
      sink.insn(ScalarOp::kXor, other, other, whole, 0);
      sink.insn(ScalarOp::kAnd, other, other, odd, 0);
      sink.insn(ScalarOp::kXor, whole, whole, other, 0);
    }
    sink.insn(ScalarOp::kAndi, whole, whole, 0, 1);
    sink.insn(ScalarOp::kMuli, whole, whole, 0, static_cast<int32_t>(p.bytes >> (s + 1)));
    if (s > 0) {
      sink.insn(ScalarOp::kAdd, whole, whole, whole - 1, 0);
    }
  }
}

// The half that is not kept: 2 * (what the core had) + half - (what it keeps).
int sent_register(HalvingRun& r, int64_t stage) {
  using spec::ScalarOp;
  const StageRegisters first(r.plan.exchange);
  if (!first.made) {
    return first.sent + static_cast<int>(stage);
  }
  const int kept = first.whole + static_cast<int>(stage);
  const auto half = static_cast<int32_t>(r.plan.bytes >> (stage + 1));
  r.sink.insn(ScalarOp::kLi, first.sent, 0, 0, half);
  if (stage > 0) {
    r.sink.insn(ScalarOp::kShli, first.made_temporary, kept - 1, 0, 1);
    r.sink.insn(ScalarOp::kAdd, first.sent, first.sent, first.made_temporary, 0);
  }
  r.sink.insn(ScalarOp::kSub, first.sent, first.sent, kept, 0);
  return first.sent;
}

// Partner and half of every stage. Where cores cross over, stages 1 and 2 change places on odd
// cores: t = (a xor b) and odd gives a xor t or b xor t.
static void stage_registers(CommandSink& sink, Channels& channels, const Exchange& e) {
  using spec::ScalarOp;
  const StageRegisters first(e);
  for (size_t s = 0; s < e.masks.size(); ++s) {
    const int bit = first.bit + static_cast<int>(s);
    const int peer = first.peer + static_cast<int>(s);
    sink.insn(ScalarOp::kShri, bit, kPartitionRegister, 0, e.bits[s]);
    sink.insn(ScalarOp::kAndi, bit, bit, 0, 1);
    if (channels.in_order()) {
      sink.insn(ScalarOp::kXori, peer, kPartitionRegister, 0, static_cast<int32_t>(e.masks[s]));
    } else {
      channels.look_up_core(peer, channels.partners(e, s));
    }
  }
  if (!e.crosses_over()) {
    return;
  }
  const int swap = first.temporary, odd = first.temporary + 1;
  for (const int pair : {first.bit + 1, first.peer + 1}) {
    if (pair != first.bit + 1 && !channels.in_order()) {
      break;  // looked up as they are
    }
    sink.insn(ScalarOp::kAndi, odd, kPartitionRegister, 0, 1);
    sink.insn(ScalarOp::kSub, odd, 0, odd, 0);
    sink.insn(ScalarOp::kXor, swap, pair, pair + 1, 0);
    sink.insn(ScalarOp::kAnd, swap, swap, odd, 0);
    sink.insn(ScalarOp::kXor, pair, pair, swap, 0);
    sink.insn(ScalarOp::kXor, pair + 1, pair + 1, swap, 0);
  }
}

// Where the half kept after each stage and the half sent by it lie in a piece.
static void half_registers(CommandSink& sink, const HalvingPlan& p) {
  using spec::ScalarOp;
  const int64_t other = p.unit == 4 ? p.bytes / 2 : p.bytes * 2;
  const StageRegisters first(p.exchange);
  for (int s = 0; s < static_cast<int>(p.stages()); ++s) {
    const int bit = first.bit + s, sent = first.sent + s;
    const auto half = static_cast<int32_t>(p.bytes >> (s + 1));
    if (first.few) {  // before its bit is the half sent
      sink.insn(ScalarOp::kMuli, first.whole + s, bit, 0, half);
    }
    sink.insn(ScalarOp::kXori, sent, bit, 0, 1);
    sink.insn(ScalarOp::kMuli, sent, sent, 0, half);
    if (!first.few) {
      sink.insn(ScalarOp::kMuli, first.whole + s, bit, 0, half);
      sink.insn(ScalarOp::kMuli, first.other + s, bit, 0, static_cast<int32_t>(other >> (s + 1)));
    }
    if (s > 0) {
      sink.insn(ScalarOp::kAdd, first.whole + s, first.whole + s, first.whole + s - 1, 0);
      if (!first.few) {
        sink.insn(ScalarOp::kAdd, first.other + s, first.other + s, first.other + s - 1, 0);
      }
      sink.insn(ScalarOp::kAdd, sent, sent, first.whole + s - 1, 0);
    }
  }
}

int whole_register(HalvingRun& r, int64_t stage, int64_t unit) {
  const StageRegisters first(r.plan.exchange);
  const int whole = first.whole + static_cast<int>(stage);
  if (unit == r.plan.unit) {
    return whole;
  }
  if (!first.few) {
    return first.other + static_cast<int>(stage);
  }
  using spec::ScalarOp;
  r.sink.insn(unit > r.plan.unit ? ScalarOp::kShli : ScalarOp::kShri, first.other, whole, 0, 1);
  return first.other;
}

// The part that this core owns.
static spec::Addr own_part(HalvingRun& r, int64_t i) {
  return offset_by(vmem_addr(r.plan.bucket(i)),
                   whole_register(r, r.plan.stages() - 1, r.plan.unit));
}

static void load_piece(HalvingRun& r, int64_t i) {
  const HalvingPlan& p = r.plan;
  const HalvingPlan::Piece& piece = p.piece(i);
  if (p.in_place || p.summed) {
    return;
  }
  if (p.only_back) {
    r.sink.copy_bytes(piece.src, own_part(r, i), p.part_bytes(), p.unit, r.id);
    std::get<Command>(r.sink.listing.items.back())
        .windows.push_back(vmem_range(p.bucket(i), p.bytes, true));
    return;
  }
  if (piece.segments.empty()) {
    r.sink.copy_bytes(piece.src, vmem_addr(p.bucket(i)), p.bytes, p.unit, r.id);
  }
  int64_t at = p.bucket(i);
  for (const HalvingPlan::Segment& s : piece.segments) {
    r.sink.copy_bytes(s.src, vmem_addr(at), s.bytes, p.unit, r.id);
    at += s.bytes;
  }
}

BackArea back_area(const HalvingPlan& p, int64_t i, size_t way) {
  const UpdatePlan* u = p.update_of(i);
  if (u == nullptr) {
    return {p.bucket(i), p.bytes, p.unit};
  }
  const int64_t unit = elem_bytes(u->update->gathered[way]->type.elem);
  const std::vector<int64_t>& ring = p.back[way];
  return {ring[static_cast<size_t>(i) % ring.size()], p.bytes / p.unit * unit, unit};
}

// Where what is sent to this core in stage `s` lands.
static int64_t landing_area(const HalvingPlan& p, int64_t i, int64_t s) {
  const auto& ring = p.landing[static_cast<size_t>(s)];
  return ring[static_cast<size_t>(i) % ring.size()];
}

static void grant_step(HalvingRun& r, int64_t i, int64_t s, std::vector<GrantRequest>& out) {
  const HalvingPlan& p = r.plan;
  HalvingRun::Grants& grants = r.grants[static_cast<size_t>(i)];
  if (s < p.stages()) {
    out.push_back({step_link(r, s), vmem_range(landing_area(p, i, s), p.bytes >> (s + 1), true),
                   &grants.landing[static_cast<size_t>(s)]});
    return;
  }
  grants.back.resize(p.ways_back(i));
  for (size_t way = 0; way < p.ways_back(i); ++way) {
    const BackArea a = back_area(p, i, way);
    out.push_back({step_link(r, s), vmem_range(a.address, a.bytes, true),
                   &grants.back[way][static_cast<size_t>(s - p.stages())]});
  }
}

// Makes the last command wait for step `s` of the way back.
static void await_back(HalvingRun& r, int64_t i, int64_t s, size_t way) {
  const BackArea a = back_area(r.plan, i, way);
  r.channels.await_arrival(
      step_link(r, s), vmem_range(a.address, a.bytes, true),
      r.grants[static_cast<size_t>(i)].back[way][static_cast<size_t>(s - r.plan.stages())]);
}

static void send_step(HalvingRun& r, int64_t i, int64_t s) {
  const HalvingPlan& p = r.plan;
  const int64_t n = p.stages();
  if (s < n) {
    r.channels.send(step_link(r, s), offset_by(vmem_addr(p.bucket(i)), sent_register(r, s)),
                    vmem_addr(landing_area(p, i, s)), p.bytes >> (s + 1), p.unit,
                    vmem_range(p.bucket(i), p.bytes, false), r.id);
    return;
  }
  const int64_t stage = 2 * n - 1 - s;
  for (size_t way = 0; way < p.ways_back(i); ++way) {
    const BackArea a = back_area(p, i, way);
    const spec::Addr part = offset_by(vmem_addr(a.address), whole_register(r, stage, a.unit));
    r.channels.send(step_link(r, s), part, part, a.bytes >> (stage + 1), a.unit,
                    vmem_range(a.address, a.bytes, false), r.id);
    if (s > n) {  // of what arrived before
      await_back(r, i, s - 1, way);
    }
  }
}

// What waits for an arrival in place of a copy, or of several commands of one.
static void append_nop(HalvingRun& r) {
  Command nop;
  nop.body = make_command<spec::NopCommand>(spec::Opcode::kNop, spec::Queue::kDmaOut, r.id);
  r.sink.append(std::move(nop));
}

// The whole piece is there: it goes home, unless its results stay in the bucket.
static void finish_piece(HalvingRun& r, int64_t i) {
  const HalvingPlan& p = r.plan;
  const auto arrived = [&](size_t way) {
    if (p.stages() > 0) {
      await_back(r, i, 2 * p.stages() - 1, way);
    }
  };
  if (const UpdatePlan* u = p.update_of(i)) {
    for (size_t way = 0; way < p.ways_back(i); ++way) {
      const BackArea a = back_area(p, i, way);
      spec::Addr home = u->gathered[way];
      home.offset += p.piece(i).element * a.unit;
      const bool one_command = a.bytes <= p.bytes;
      if (!one_command) {
        append_nop(r);
        arrived(way);
      }
      r.sink.copy_bytes(vmem_addr(a.address), home, a.bytes, a.unit, r.id);
      if (one_command) {
        arrived(way);
      }
    }
    return;
  }
  if (p.in_place) {
    append_nop(r);
  } else if (p.piece(i).segments.empty()) {
    r.sink.copy_bytes(vmem_addr(p.bucket(i)), p.piece(i).dst, p.bytes, p.unit, r.id);
  }
  int64_t at = p.bucket(i);
  for (const HalvingPlan::Segment& s : p.piece(i).segments) {
    r.sink.copy_bytes(vmem_addr(at), s.dst, s.bytes, p.unit, r.id);
    if (at == p.bucket(i)) {
      arrived(0);
    }
    at += s.bytes;
  }
  if (p.piece(i).segments.empty()) {
    arrived(0);
  }
}

// The arrival of step s: the sum on the way down, the end of the way back.
static void arrive_step(HalvingRun& r, int64_t i, int64_t s) {
  const HalvingPlan& p = r.plan;
  const int64_t n = p.stages();
  if (s >= n) {
    if (s == 2 * n - 1) {
      finish_piece(r, i);
    }
    return;
  }
  if (p.summed) {
    emit_update(r, i);
    return;
  }
  if (p.only_back) {
    return;
  }
  const int64_t there = landing_area(p, i, s), bytes = p.bytes >> (s + 1);
  const spec::Addr kept =
      offset_by(vmem_addr(p.bucket(i)), StageRegisters(p.exchange).whole + static_cast<int>(s));
  combine(r.sink, r.sum, kept, vmem_addr(there), kept, bytes,
          {vmem_range(p.bucket(i), p.bytes, true)}, r.id);
  r.channels.await_arrival(step_link(r, s), vmem_range(there, bytes, true),
                           r.grants[static_cast<size_t>(i)].landing[static_cast<size_t>(s)]);
  if (s == n - 1 && p.piece(i).update >= 0) {
    emit_update(r, i);
  }
  if (s == n - 1 && p.only_down) {
    const spec::Addr part = own_part(r, i);
    r.sink.copy_bytes(part, p.piece(i).dst, p.part_bytes(), p.unit, r.id);
    std::get<Command>(r.sink.listing.items.back())
        .windows.push_back(vmem_range(p.bucket(i), p.bytes, false));
  }
}

HalvingRun::HalvingRun(CommandSink& to, Channels& over, const HalvingPlan& planned, const Op& op,
                       uint32_t op_id)
    : sink(to),
      channels(over),
      plan(planned),
      sum(sum_program(to, op)),
      id(op_id),
      grants(planned.pieces.size()) {
  for (size_t s = 0; StageRegisters(plan.exchange).made && s < plan.exchange.stages(); ++s) {
    partners.push_back(channels.partners(plan.exchange, s));
  }
}

void HalvingRun::set_registers() {
  if (StageRegisters(plan.exchange).made) {
    whole_registers(sink, plan);
    return;
  }
  stage_registers(sink, channels, plan.exchange);
  half_registers(sink, plan);
}

void HalvingRun::next_round() {
  const int64_t n = static_cast<int64_t>(plan.pieces.size()), lag = plan.lag;
  // Pieces 0 .. begun have begun; their age counts the rounds of a way from its beginning.
  const int64_t first_age = plan.first_age(), begun = round++, t = begun + first_age;
  const int64_t steps = plan.steps(), first = std::max<int64_t>(0, t - 1 - steps * lag);
  const auto each = [&](const auto& act) {
    for (int64_t i = first; i <= std::min(begun, n - 1); ++i) {
      act(i, t - i);
    }
  };
  std::vector<GrantRequest> requests;
  each([&](int64_t i, int64_t age) {
    if (age == first_age) {
      load_piece(*this, i);
    }
    if (age == plan.stages() * lag && plan.piece(i).update >= 0) {
      load_update(*this, i);
    }
  });
  each([&](int64_t i, int64_t age) {
    if (steps == 0 && age == 1) {
      finish_piece(*this, i);
    }
    if (age > std::max<int64_t>(1, first_age) && (age - 1) % lag == 0 && (age - 1) / lag <= steps) {
      arrive_step(*this, i, (age - 1) / lag - 1);
    }
  });
  each([&](int64_t i, int64_t age) {
    if (age % lag == 0 && age / lag < steps) {
      grant_step(*this, i, age / lag, requests);
    }
  });
  channels.grant(requests, id);
  each([&](int64_t i, int64_t age) {
    if (age > first_age && (age - 1) % lag == 0 && (age - 1) / lag < steps) {
      send_step(*this, i, (age - 1) / lag);
    }
  });
}

}  // namespace tpu::compiler
