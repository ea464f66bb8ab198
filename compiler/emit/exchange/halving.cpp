// Exchange by halving, as a stream: in every round one piece is loaded, and the pieces on their way
// take one step each. On all eight cores the first half of a piece goes x before y and the second y
// before x, so that both links of a chip are busy; the sums are ((0+1)+(2+3))+((4+5)+(6+7)) and
// ((0+1)+(4+5))+((2+3)+(6+7)). Sums replace what the core had. A step is: arrival (and sum) of what
// was sent `lag` rounds before, grants for the next round, sends.
#include <algorithm>

#include "emit/exchange/inflight.hpp"
#include "vpu/vpu_build.hpp"

namespace tpu::compiler {

// Step s of halving (s < stages), or of the way back. Exchanges over different groups share the
// channel of a step only if it pairs the same cores and the same queue waits for its arrivals: the
// vector unit sums on the way down, the next send waits on the way back, and what stores the piece
// waits for the last step.
static Link step_link(EmitContext& ctx, const InflightExchange& r, int64_t s) {
  const int64_t last = 2 * r.stages() - 1, stage = s < r.stages() ? s : last - s;
  const spec::Queue waiting = s < r.stages() ? spec::Queue::kVpu
                              : s < last     ? spec::Queue::kDmaRemote
                                             : spec::Queue::kDmaOut;
  return {ctx.channels.stage_channel(r.exchange, static_cast<size_t>(stage), waiting),
          StageRegisters(r.stages()).peer + static_cast<int>(stage)};
}

// Partner and half of every stage. Where cores cross over, stages 1 and 2 change places on odd
// cores: t = (a xor b) and odd gives a xor t or b xor t.
void stage_registers(CommandSink& sink, const Exchange& e) {
  using spec::ScalarOp;
  const StageRegisters first(static_cast<int64_t>(e.stages()));
  for (size_t s = 0; s < e.masks.size(); ++s) {
    const int bit = first.bit + static_cast<int>(s);
    const int peer = first.peer + static_cast<int>(s);
    sink.insn(ScalarOp::kShri, bit, kPartitionRegister, 0, e.bits[s]);
    sink.insn(ScalarOp::kAndi, bit, bit, 0, 1);
    sink.insn(ScalarOp::kXori, peer, kPartitionRegister, 0, static_cast<int32_t>(e.masks[s]));
  }
  if (!crosses_over(e)) {
    return;
  }
  const int swap = first.temporary, odd = first.temporary + 1;
  for (const int pair : {first.bit + 1, first.peer + 1}) {
    sink.insn(ScalarOp::kAndi, odd, kPartitionRegister, 0, 1);
    sink.insn(ScalarOp::kSub, odd, 0, odd, 0);
    sink.insn(ScalarOp::kXor, swap, pair, pair + 1, 0);
    sink.insn(ScalarOp::kAnd, swap, swap, odd, 0);
    sink.insn(ScalarOp::kXor, pair, pair, swap, 0);
    sink.insn(ScalarOp::kXor, pair + 1, pair + 1, swap, 0);
  }
}

// Where the half kept after each stage and the half sent by it lie in a piece.
void half_registers(CommandSink& sink, const InflightExchange& r) {
  using spec::ScalarOp;
  const int64_t other = r.unit == 4 ? r.bytes / 2 : r.bytes * 2;
  const StageRegisters first(r.stages());
  for (int s = 0; s < static_cast<int>(r.stages()); ++s) {
    const int bit = first.bit + s, sent = first.sent + s;
    const auto half = static_cast<int32_t>(r.bytes >> (s + 1));
    sink.insn(ScalarOp::kXori, sent, bit, 0, 1);
    sink.insn(ScalarOp::kMuli, sent, sent, 0, half);
    sink.insn(ScalarOp::kMuli, first.whole + s, bit, 0, half);
    sink.insn(ScalarOp::kMuli, first.other + s, bit, 0, static_cast<int32_t>(other >> (s + 1)));
    if (s > 0) {
      for (const int base : {first.whole, first.other}) {
        sink.insn(ScalarOp::kAdd, base + s, base + s, base + s - 1, 0);
      }
      sink.insn(ScalarOp::kAdd, sent, sent, first.whole + s - 1, 0);
    }
  }
}

// Register with the offset of what the core holds after stage `stage`, for elements of `unit`.
int whole_register(const InflightExchange& r, int64_t stage, int64_t unit) {
  const StageRegisters first(r.stages());
  return (unit == r.unit ? first.whole : first.other) + static_cast<int>(stage);
}

// VMEM for all pieces on their way.
bool take_memory(Residency& memory, InflightExchange& r) {
  bool fits = true;
  const auto area = [&](int64_t bytes) -> int64_t {
    const int64_t address = fits ? memory.take(bytes).value_or(-1) : -1;
    fits = address >= 0;
    if (fits) {
      r.memory.push_back(address);
    }
    return address;
  };
  const int64_t way = r.stages() * r.lag;
  const auto n = static_cast<int64_t>(r.parts.size());
  size_t backs = 0, slots = 0;
  int64_t ring = way + 2;
  for (const InflightExchange::Part& p : r.parts) {
    if (p.update == nullptr) {
      ring = 2 * way + 2;
    } else {
      backs = std::max(backs, p.update->gathered.size());
      slots = std::max(slots, update_slots(*p.update));
    }
  }
  if (r.buckets.empty()) {
    for (int64_t i = 0; i < std::min(ring, n); ++i) {
      r.buckets.push_back(area(r.bytes));
    }
  }
  for (int64_t s = 0; s < r.stages(); ++s) {
    for (int64_t i = 0; i < std::min(r.lag + 2, n); ++i) {
      r.landing[static_cast<size_t>(s)].push_back(area(r.bytes >> (s + 1)));
    }
  }
  for (size_t b = 0; b < backs; ++b) {
    r.back.emplace_back();
    for (int64_t i = 0; i < std::min(way + 2, n); ++i) {
      r.back.back().push_back(area(r.bytes));
    }
  }
  for (size_t o = 0; o < slots; ++o) {
    r.slots.emplace_back();
    for (int64_t i = 0; i < std::min<int64_t>(3, n); ++i) {
      r.slots.back().push_back(area(2 * r.part_bytes()));
    }
  }
  return fits;
}

static void load_piece(EmitContext& ctx, InflightExchange& r, int64_t i) {
  const InflightExchange::Part& p = r.parts[static_cast<size_t>(i)];
  for (const Share& s : p.shares) {
    const Buffer& b = ctx.memory.at(r.kernel->reads[s.value]);
    const spec::Addr src = place_of(b, s.from);
    ctx.sink.copy_bytes(src, vmem_addr(r.bucket(i) + s.at), s.bytes, r.unit, r.id);
  }
  if (p.used < r.bytes) {
    ctx.sink.fill(vmem_addr(r.bucket(i) + p.used), r.unit, (r.bytes - p.used) / r.unit, 0, r.id);
  }
}

// The area that piece `i` uses on its way back, and the size of its elements.
BackArea back_area(const InflightExchange& r, int64_t i, size_t way) {
  const InflightExchange::Part& p = r.parts[static_cast<size_t>(i)];
  if (p.update == nullptr) {
    return {r.bucket(i), r.bytes, r.unit};
  }
  const int64_t unit = elem_bytes(p.update->gathered[way]->type.elem);
  const std::vector<int64_t>& ring = r.back[way];
  return {ring[static_cast<size_t>(i) % ring.size()], r.bytes / r.unit * unit, unit};
}

static void grant_step(EmitContext& ctx, InflightExchange& r, int64_t i, int64_t s,
                       std::vector<GrantRequest>& out) {
  InflightExchange::Part& p = r.parts[static_cast<size_t>(i)];
  if (s < r.stages()) {
    const auto& ring = r.landing[static_cast<size_t>(s)];
    const int64_t there = ring[static_cast<size_t>(i) % ring.size()];
    out.push_back({step_link(ctx, r, s), vmem_range(there, r.bytes >> (s + 1), true),
                   &p.granted[static_cast<size_t>(s)]});
    return;
  }
  p.back_grant.resize(r.ways_back(i));
  for (size_t way = 0; way < r.ways_back(i); ++way) {
    const BackArea a = back_area(r, i, way);
    out.push_back({step_link(ctx, r, s), vmem_range(a.address, a.bytes, true),
                   &p.back_grant[way][static_cast<size_t>(s - r.stages())]});
  }
}

static void send_step(EmitContext& ctx, InflightExchange& r, int64_t i, int64_t s) {
  const int64_t n = r.stages();
  if (s < n) {
    const auto& ring = r.landing[static_cast<size_t>(s)];
    ctx.channels.send(
        step_link(ctx, r, s),
        offset_by(vmem_addr(r.bucket(i)), StageRegisters(r.stages()).sent + static_cast<int>(s)),
        vmem_addr(ring[static_cast<size_t>(i) % ring.size()]), r.bytes >> (s + 1), r.unit,
        vmem_range(r.bucket(i), r.bytes, false), r.id);
    return;
  }
  const int64_t stage = 2 * n - 1 - s;
  for (size_t way = 0; way < r.ways_back(i); ++way) {
    const BackArea a = back_area(r, i, way);
    const spec::Addr part = offset_by(vmem_addr(a.address), whole_register(r, stage, a.unit));
    ctx.channels.send(step_link(ctx, r, s), part, part, a.bytes >> (stage + 1), a.unit,
                      vmem_range(a.address, a.bytes, false), r.id);
    if (s > n) {  // of what arrived before
      ctx.channels.await_arrival(
          step_link(ctx, r, s - 1), vmem_range(a.address, a.bytes, true),
          r.parts[static_cast<size_t>(i)].back_grant[way][static_cast<size_t>(s - 1 - n)]);
    }
  }
}

// The whole piece is there: it goes home, unless its results stay in the bucket.
static void finish_piece(EmitContext& ctx, InflightExchange& r, int64_t i) {
  InflightExchange::Part& p = r.parts[static_cast<size_t>(i)];
  const int64_t n = r.stages();
  const auto arrived = [&](size_t way) {
    if (n > 0) {
      const BackArea a = back_area(r, i, way);
      ctx.channels.await_arrival(step_link(ctx, r, 2 * n - 1), vmem_range(a.address, a.bytes, true),
                                 p.back_grant[way][static_cast<size_t>(n - 1)]);
    }
  };
  if (p.update != nullptr) {
    for (size_t way = 0; way < r.ways_back(i); ++way) {
      const BackArea a = back_area(r, i, way);
      Buffer& b = ctx.memory.at(p.update->gathered[way]);
      ctx.sink.copy_bytes(vmem_addr(a.address), home_of(b, p.element * a.unit), a.bytes, a.unit,
                          r.id);
      arrived(way);
    }
    return;
  }
  const bool one = !r.in_place && p.shares.size() == 1 &&
                   ctx.memory.at(r.kernel->writes[p.shares[0].value]).vmem < 0;
  if (!one) {
    Command nop;
    nop.body = make_command<spec::NopCommand>(spec::Opcode::kNop, spec::Queue::kDmaOut, r.id);
    ctx.sink.append(std::move(nop));
    arrived(0);
  }
  if (r.in_place) {
    return;
  }
  for (const Share& s : p.shares) {
    const Buffer& b = ctx.memory.at(r.kernel->writes[s.value]);
    const spec::Addr to = place_of(b, s.from);
    ctx.sink.copy_bytes(vmem_addr(r.bucket(i) + s.at), to, s.bytes, r.unit, r.id);
  }
  if (one) {
    arrived(0);
  }
}

// The arrival of step s: the sum on the way down, the end of the way back.
static void arrive_step(EmitContext& ctx, InflightExchange& r, int64_t i, int64_t s) {
  InflightExchange::Part& p = r.parts[static_cast<size_t>(i)];
  const int64_t n = r.stages();
  if (s >= n) {
    if (s == 2 * n - 1) {
      finish_piece(ctx, r, i);
    }
    return;
  }
  const auto& ring = r.landing[static_cast<size_t>(s)];
  const int64_t there = ring[static_cast<size_t>(i) % ring.size()], bytes = r.bytes >> (s + 1);
  const spec::Addr kept =
      offset_by(vmem_addr(r.bucket(i)), StageRegisters(r.stages()).whole + static_cast<int>(s));
  combine(ctx.sink, r.sum, kept, vmem_addr(there), kept, bytes,
          {vmem_range(r.bucket(i), r.bytes, true)}, r.id);
  ctx.channels.await_arrival(step_link(ctx, r, s), vmem_range(there, bytes, true),
                             p.granted[static_cast<size_t>(s)]);
  if (s == n - 1 && p.update != nullptr) {
    emit_update(ctx, r, i);
  }
}

void run_round(EmitContext& ctx, InflightExchange& r) {
  const int64_t t = r.round++, n = static_cast<int64_t>(r.parts.size());
  const int64_t steps = 2 * r.stages(), first = std::max<int64_t>(0, t - 1 - steps * r.lag);
  const auto each = [&](const auto& act) {
    for (int64_t i = first; i <= std::min(t, n - 1); ++i) {
      act(i, t - i);
    }
  };
  std::vector<GrantRequest> grants;
  each([&](int64_t i, int64_t age) {
    if (age == 0) {
      load_piece(ctx, r, i);
    }
    if (age == r.stages() * r.lag && r.parts[static_cast<size_t>(i)].update != nullptr) {
      load_update(ctx, r, i);
    }
  });
  each([&](int64_t i, int64_t age) {
    if (steps == 0 && age == 1) {
      finish_piece(ctx, r, i);
    }
    if (age > 1 && (age - 1) % r.lag == 0 && (age - 1) / r.lag <= steps) {
      arrive_step(ctx, r, i, (age - 1) / r.lag - 1);
    }
  });
  each([&](int64_t i, int64_t age) {
    if (age % r.lag == 0 && age / r.lag < steps) {
      grant_step(ctx, r, i, age / r.lag, grants);
    }
  });
  ctx.channels.grant(grants, r.id);
  each([&](int64_t i, int64_t age) {
    if (age > 0 && (age - 1) % r.lag == 0 && (age - 1) / r.lag < steps) {
      send_step(ctx, r, i, (age - 1) / r.lag);
    }
  });
}

}  // namespace tpu::compiler
