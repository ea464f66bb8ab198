#include "plan/exchange/packed_plan.hpp"

#include <algorithm>

namespace tpu::compiler {

namespace {

constexpr int64_t kSmallBytes = 64 * 1024;
constexpr size_t kMostGrain = 8;  // stages; of more the parts are smaller than kAlign

// The part of one value that lies in an area.
struct Share {
  size_t value = 0;  // index into reads and writes of the kernel
  int64_t from = 0, bytes = 0;
  int64_t at = 0;  // in the area
};

// What the bytes of an area are a multiple of. Doubling with few stages takes that of halving, as
// it always did; with more it would send mostly padding.
int64_t grain(const Exchange& exchange, bool halves) {
  constexpr size_t kFewStages = 5;
  return halves || exchange.stages() <= kFewStages
             ? kAlign << std::min(exchange.stages(), kMostGrain)
             : kAlign;
}

// Shares of the areas, in the order of the spans.
std::vector<std::vector<Share>> cut_areas(const Kernel& k, int64_t limit) {
  std::vector<std::vector<Share>> areas;
  int64_t used = limit;  // opens an area at once
  for (const Span& span : k.exchange().spans) {
    const int64_t end = span.from + span.bytes;
    for (int64_t from = span.from; from < end;) {
      if (used + std::min(end - from, limit) > limit) {
        areas.emplace_back();
        used = 0;
      }
      const int64_t bytes = std::min(end - from, limit - used);
      areas.back().push_back({span.value, from, bytes, used});
      used += bytes;
      from += bytes;
    }
  }
  return areas;
}

// Results: buffers that stay inside the area are returned, others go home.
std::vector<Buffer*> unpack(Residency& memory, const Kernel& k, const std::vector<Share>& shares,
                            const PackedPlan& plan, uint32_t op_id) {
  std::vector<Buffer*> inside;
  for (const Share& s : shares) {
    Buffer& b = memory.at(k.writes[s.value]);
    const bool complete = s.from + s.bytes == b.bytes;
    memory.touch(b);
    if (s.bytes == b.bytes && b.bytes <= memory.whole_limit()) {
      b.vmem = plan.sum() + s.at;
      inside.push_back(&b);
      if (b.must_store) {
        memory.store(b, op_id);
      }
      continue;
    }
    if (b.vmem < 0) {
      memory.give_home(b);
      b.in_hbm = b.in_hbm || complete;
    }
    memory.move({vmem_addr(plan.sum() + s.at), place_of(b, s.from), s.bytes, plan.unit, op_id});
    if (b.vmem >= 0 && b.must_store && complete) {
      memory.store(b, op_id);
    }
  }
  return inside;
}

// Pieces of the area, or what lands here in the stages of doubling.
bool take_areas(Residency& memory, const Exchange& exchange, int64_t pieces, PackedPlan& plan) {
  if (!plan.halves) {
    plan.masks = exchange.masks;
    for (size_t s = 0; s < exchange.stages(); ++s) {
      const auto address = memory.take(plan.bytes);
      if (!address) {
        return false;
      }
      plan.landing.push_back(*address);
    }
    return true;
  }
  HalvingPlan& h = plan.halving;
  h.exchange = exchange;
  h.bytes = plan.bytes / pieces;
  h.unit = plan.unit;
  h.in_place = true;
  h.pieces.resize(static_cast<size_t>(pieces));
  for (int64_t i = 0; i < pieces; ++i) {
    h.buckets.push_back(plan.area + i * h.bytes);
  }
  return take_rings(memory, h);
}

std::optional<PackedPlan> plan_area(const Kernel& k, const Exchange& exchange, int64_t piece_bytes,
                                    const std::vector<Share>& shares, Residency& memory,
                                    uint32_t op_id) {
  PackedPlan plan;
  plan.unit = elem_bytes(k.ops[0]->operand_type(0).elem);
  plan.used = shares.back().at + shares.back().bytes;
  plan.halves = exchange.stages() > 0 && plan.used > kSmallBytes;
  const int64_t pieces = plan.halves ? (plan.used + piece_bytes - 1) / piece_bytes : 1;
  plan.bytes = round_up((plan.used + pieces - 1) / pieces, grain(exchange, plan.halves)) * pieces;
  // Doubling reads its area alone: a value that fills one is sent from where it lies.
  const Buffer& only = memory.at(k.reads[shares[0].value]);
  const bool in_place = !plan.halves && exchange.stages() > 0 && shares.size() == 1 &&
                        only.vmem >= 0 && plan.used == only.bytes && plan.bytes == only.bytes;
  if (in_place) {
    plan.area = only.vmem;
    memory.pins().add(only);
  } else {
    const auto area = memory.take(plan.bytes);
    if (!area) {
      return std::nullopt;
    }
    plan.area = *area;
    for (const Share& s : shares) {
      memory.move({place_of(memory.at(k.reads[s.value]), s.from), vmem_addr(plan.area + s.at),
                   s.bytes, plan.unit, op_id});
    }
  }
  if (!take_areas(memory, exchange, pieces, plan)) {
    return std::nullopt;
  }
  plan.before = memory.take_moves();
  const std::vector<Buffer*> inside = unpack(memory, k, shares, plan, op_id);
  std::vector<int64_t> areas = plan.halves ? plan.halving.memory : plan.landing;
  if (!in_place) {
    areas.push_back(plan.area);
  }
  for (const int64_t address : areas) {
    if (address != plan.sum() || inside.empty()) {
      memory.give(address);
    }
  }
  for (const Buffer* b : inside) {  // they share its memory
    memory.shared().add(b->vmem, plan.sum());
  }
  plan.after = memory.take_moves();
  return plan;
}

}  // namespace

std::optional<std::vector<PackedPlan>> plan_packed(const Kernel& k, const Exchange& exchange,
                                                   int64_t piece_bytes,
                                                   const spec::BoardParams& board,
                                                   Residency& memory, uint32_t op_id) {
  Reservation whole(memory);
  const int64_t grain = kAlign << std::min(exchange.stages(), kMostGrain);
  const int64_t limit = std::max(board.core.vmem_kib * 1024 / 4 / grain, int64_t{1}) * grain;
  std::vector<PackedPlan> plans;
  for (const std::vector<Share>& shares : cut_areas(k, limit)) {
    auto plan = plan_area(k, exchange, piece_bytes, shares, memory, op_id);
    if (!plan) {
      return std::nullopt;
    }
    plans.push_back(std::move(*plan));
  }
  memory.pins().clear();
  whole.keep();
  return plans;
}

}  // namespace tpu::compiler
