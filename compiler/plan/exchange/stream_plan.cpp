#include "plan/exchange/stream_plan.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace tpu::compiler {

namespace {

bool lists(const std::vector<const Value*>& list, const Value* v) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

// A buffer that the exchange uses must neither move nor die before its end.
void hold(Residency& memory, const Value* v) { memory.pins().held.insert(&memory.at(v)); }

void give_held_home(Residency& memory, const Value* v) {
  memory.give_home(memory.at(v));
  hold(memory, v);
}

// What an update reads part by part comes from HBM.
void hold_operands(Residency& memory, const Kernel& k, const Update& u, uint32_t op_id) {
  for (const UpdateKernel& uk : u.kernels) {
    for (const NestAccess& a : uk.nest.accesses) {
      Buffer* b = memory.find(a.value);
      if (a.value == u.sum || b == nullptr || a.view.stride[0] == 0 || !lists(k.reads, a.value)) {
        continue;
      }
      if (!b->in_hbm) {
        memory.store(*b, op_id);
      }
      memory.pins().held.insert(b);
    }
  }
}

// Homes of results; operands stay where they are until the end.
void prepare_buffers(Residency& memory, const Kernel& k, uint32_t op_id) {
  const std::vector<Update>& updates = k.exchange().updates;
  for (const Span& span : k.exchange().spans) {
    hold(memory, k.reads[span.value]);
    if (std::none_of(updates.begin(), updates.end(),
                     [&](const Update& u) { return u.value == span.value; })) {
      give_held_home(memory, k.writes[span.value]);
    }
  }
  for (const Update& u : updates) {
    hold_operands(memory, k, u, op_id);
    for (const auto* list : {&u.gathered, &u.sharded}) {
      for (const Value* w : *list) {
        give_held_home(memory, w);
      }
    }
  }
}

UpdatePlan plan_update(const Update& u, Residency& memory) {
  UpdatePlan plan;
  plan.update = &u;
  plan.operands = update_operands(u);
  for (UpdateOperand& o : plan.operands) {
    if (o.input || lists(u.sharded, o.value)) {
      const Buffer& b = memory.at(o.value);
      o.home = home_of(b);
      o.root = b.slot;
    }
  }
  for (const Value* w : u.gathered) {
    plan.gathered.push_back(home_of(memory.at(w)));
  }
  return plan;
}

void cut_pieces(StreamPlan& plan, Residency& memory) {
  const Kernel& k = *plan.kernel;
  for (const Update& u : k.exchange().updates) {
    plan.updates.push_back(plan_update(u, memory));
  }
  for (const Span& span : k.exchange().spans) {
    HalvingPlan::Piece p;
    p.value = span.value;
    for (size_t u = 0; u < plan.updates.size(); ++u) {
      if (plan.updates[u].update->value == span.value) {
        p.update = static_cast<int>(u);
      }
    }
    for (p.from = span.from; p.from < span.from + span.bytes; p.from += plan.bytes) {
      p.element = p.from / plan.unit;
      p.src = place_of(memory.at(k.reads[span.value]), p.from);
      if (p.update < 0) {
        p.dst = home_of(memory.at(k.writes[span.value]), p.from);
      }
      plan.pieces.push_back(p);
    }
  }
}

// Copies of small operands that are read at one place.
bool load_scalars(Residency& memory, StreamPlan& plan, uint32_t op_id) {
  for (const Update& u : plan.kernel->exchange().updates) {
    for (const UpdateKernel& uk : u.kernels) {
      for (const NestAccess& a : uk.nest.accesses) {
        if (a.view.stride[0] != 0 || plan.scalars.contains(a.value)) {
          continue;
        }
        const Buffer& b = memory.at(a.value);
        const auto address = memory.take(b.bytes);
        if (!address) {
          return false;
        }
        plan.memory.push_back(*address);
        plan.scalars[a.value] = *address;
        memory.move(
            {place_of(b), vmem_addr(*address), b.bytes, elem_bytes(a.value->type.elem), op_id});
      }
    }
  }
  return true;
}

constexpr size_t kNear = 3;     // stages of the first phase
constexpr size_t kMany = 6;     // with fewer, both ways beside each other are faster
constexpr int64_t kGroups = 2;  // of pieces from which on phases are worth it

// Stages [first, end) of an exchange.
Exchange stages_of(const Exchange& e, size_t first, size_t end) {
  Exchange part;
  for (size_t s = first; s < end; ++s) {
    part.masks.push_back(e.masks[s]);
    part.bits.push_back(e.bits[s]);
    if (e.crosses_over()) {
      part.of_odd.push_back(e.of_odd[s] - first);
    }
  }
  return part;
}

bool has_phases(const StreamPlan& plan) {
  const Exchange& e = plan.exchange;
  if (e.stages() < kMany || plan.summed || !plan.updates.empty() ||
      static_cast<int64_t>(plan.pieces.size()) < kGroups << kNear) {
    return false;
  }
  return !e.crosses_over() || std::all_of(e.of_odd.begin(), e.of_odd.begin() + kNear,
                                          [](size_t s) { return s < kNear; });
}

// What each phase does, without areas.
struct PhaseShape {
  int64_t near_lag, far_lag, far_parts;  // parts of a piece of the second phase
};

void cut_phases(StreamPlan& plan, const PhaseShape& shape) {
  const Exchange whole = plan.exchange;
  HalvingPlan across = plan, back = plan;
  const int64_t part = plan.bytes >> kNear;
  plan.lag = back.lag = shape.near_lag;
  plan.exchange = back.exchange = stages_of(whole, 0, kNear);
  plan.only_down = back.only_back = true;
  across.exchange = stages_of(whole, kNear, whole.stages());
  across.lag = shape.far_lag;
  across.bytes = part * shape.far_parts;
  across.pieces.clear();
  for (size_t i = 0; i < plan.pieces.size(); ++i) {
    HalvingPlan::Piece& down = plan.pieces[i];
    // The parts of a value lie one behind the other at the end of what it exchanges.
    const Span& span = *std::ranges::find(plan.kernel->exchange().spans, down.value, &Span::value);
    const int64_t at = span.bytes - (span.bytes >> kNear) + ((down.from - span.from) >> kNear);
    spec::Addr middle = down.dst;
    middle.offset += at - (down.from - span.from);
    down.dst = back.pieces[i].src = middle;
    if (static_cast<int64_t>(i) % shape.far_parts == 0) {
      across.pieces.emplace_back();
    }
    across.pieces.back().segments.push_back({middle, middle, part});
  }
  plan.phases = {std::move(across), std::move(back)};
}

// One slab of VMEM, which each phase cuts anew.
bool take_phases(Residency& memory, StreamPlan& plan) {
  const auto each = [&](int64_t begin) {
    int64_t most = 0;
    for (HalvingPlan* phase :
         {static_cast<HalvingPlan*>(&plan), &plan.phases[0], &plan.phases[1]}) {
      int64_t used = 0;
      HalvingPlan cut = *phase;
      const bool fits = take_rings(
          [&](int64_t bytes) -> std::optional<int64_t> {
            return begin + std::exchange(used, used + round_up(bytes, kAlign));
          },
          cut);
      if (!fits) {
        throw Error("internal: an area without an end is too small");
      }
      most = std::max(most, used);
      if (begin >= 0) {
        *phase = std::move(cut);
      }
    }
    return most;
  };
  const auto slab = memory.take(each(-1));
  if (!slab) {
    return false;
  }
  each(*slab);
  plan.memory = {*slab};
  return true;
}

std::optional<StreamPlan> plan_phases(Residency& memory, const StreamPlan& pieces) {
  if (!has_phases(pieces)) {
    return std::nullopt;
  }
  constexpr std::array<PhaseShape, 4> kShapes = {{{2, 2, 8}, {2, 1, 8}, {2, 1, 4}, {1, 1, 4}}};
  for (const PhaseShape& shape : kShapes) {
    Reservation attempt(memory);
    StreamPlan plan = pieces;
    cut_phases(plan, shape);
    if (take_phases(memory, plan)) {
      attempt.keep();
      return plan;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<StreamPlan> plan_streamed(const Kernel& k, const StreamSite& site, Residency& memory,
                                        uint32_t op_id) {
  Reservation whole(memory);
  prepare_buffers(memory, k, op_id);
  StreamPlan pieces;
  pieces.kernel = &k;
  pieces.overlaps = site.overlaps;
  pieces.summed = k.exchange().summed;
  pieces.exchange = site.exchange;
  pieces.bytes = site.piece_bytes;
  pieces.unit = elem_bytes(k.ops[0]->operand_type(0).elem);
  cut_pieces(pieces, memory);
  const auto done = [&](StreamPlan& plan) {
    for (int64_t i = 0; i < static_cast<int64_t>(plan.pieces.size()); ++i) {
      find_operand(memory, plan, i);
    }
    if (!plan.overlaps) {
      end_streamed(memory, plan);
    }
  };
  if (auto plan = plan_phases(memory, pieces)) {
    whole.keep();
    done(*plan);
    return plan;
  }
  const bool alone = site.next == nullptr || must_follow(*site.next, k, memory);
  for (int64_t lag = alone ? 2 : 1; lag > 0; --lag) {  // with less VMEM beside other kernels
    Reservation attempt(memory);
    StreamPlan plan = pieces;
    plan.lag = lag;
    if (take_rings(memory, plan) && load_scalars(memory, plan, op_id)) {
      attempt.keep();
      whole.keep();
      done(plan);
      return plan;
    }
  }
  return std::nullopt;
}

void find_operand(Residency& memory, StreamPlan& plan, int64_t piece) {
  HalvingPlan::Piece& p = plan.pieces[static_cast<size_t>(piece)];
  p.src = place_of(memory.at(plan.kernel->reads[p.value]), p.from);
}

void end_streamed(Residency& memory, const StreamPlan& plan) {
  for (const int64_t area : plan.memory) {
    memory.give(area);
  }
  for (const Value* w : plan.kernel->writes) {
    Buffer& b = memory.at(w);
    memory.touch(b);
    b.in_hbm = b.in_hbm || b.slot >= 0;
  }
  memory.pins().held.clear();
}

bool must_follow(const Kernel& k, const Kernel& streamed, Residency& memory) {
  switch (k.kind) {
    case KernelClass::kLoop:
    case KernelClass::kContract:
    case KernelClass::kConcatenate:
    case KernelClass::kPad:
      break;
    default:
      return true;
  }
  if (std::any_of(k.reads.begin(), k.reads.end(),
                  [&](const Value* v) { return lists(streamed.writes, v); })) {
    return true;
  }
  const auto& held = memory.pins().held;
  const auto root = [&](const Buffer& b) { return b.slot < 0 || b.scratch ? -1 : b.slot; };
  return std::any_of(k.writes.begin(), k.writes.end(), [&](const Value* v) {
    const int slot = root(memory.at(v));
    return slot >= 0 &&
           std::any_of(held.begin(), held.end(), [&](const Buffer* b) { return root(*b) == slot; });
  });
}

}  // namespace tpu::compiler
