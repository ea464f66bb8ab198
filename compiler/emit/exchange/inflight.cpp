// Start and end of a streamed exchange.
#include "emit/exchange/inflight.hpp"

#include <algorithm>

#include "program/estimate.hpp"

namespace tpu::compiler {

// A buffer that the exchange uses must neither move nor die before its end.
static void hold(Residency& memory, const Value* v) { memory.held().insert(&memory.at(v)); }

void pace(EmitContext& ctx) {
  if (ctx.inflight == nullptr) {
    return;
  }
  InflightExchange& r = *ctx.inflight;
  for (; r.paced_items < ctx.sink.listing.items.size(); ++r.paced_items) {
    if (const auto* c = std::get_if<Command>(&ctx.sink.listing.items[r.paced_items])) {
      r.paced_busy[static_cast<size_t>(c->queue())] += busy_cycles(*c, ctx.sink.listing, ctx.board);
    }
  }
  // A round sends a piece less its last part, twice, through the port of the core.
  const uint64_t round = port_cycles(ctx.board, 2 * (r.bytes - r.part_bytes()));
  while (*std::max_element(r.paced_busy.begin(), r.paced_busy.end()) >= round &&
         r.round < r.rounds()) {
    for (uint64_t& busy : r.paced_busy) {
      busy -= std::min(busy, round);
    }
    run_round(ctx, r);
    r.paced_items = ctx.sink.listing.items.size();
  }
  if (r.round >= r.rounds()) {
    finish_inflight(ctx);
  }
}

// Homes of results; operands stay where they are until the end.
static void prepare_buffers(Residency& memory, InflightExchange& r) {
  const Kernel& k = *r.kernel;
  for (const Span& span : k.exchange().spans) {
    hold(memory, k.reads[span.value]);
    const bool updated = std::any_of(k.exchange().updates.begin(), k.exchange().updates.end(),
                                     [&](const Update& u) { return u.value == span.value; });
    if (!updated) {
      memory.give_home(memory.at(k.writes[span.value]));
      hold(memory, k.writes[span.value]);
    }
  }
  for (const Update& u : k.exchange().updates) {
    for (const UpdateKernel& uk : u.kernels) {
      for (const NestAccess& a : uk.nest.accesses) {
        Buffer* found = memory.find(a.value);
        if (a.value == u.sum || found == nullptr) {
          continue;
        }
        Buffer& b = *found;
        if (a.view.stride[0] != 0 &&
            std::find(k.reads.begin(), k.reads.end(), a.value) != k.reads.end()) {
          if (!b.in_hbm) {
            memory.store(b, r.id);
          }
          memory.held().insert(&b);
        }
      }
    }
    for (const auto* list : {&u.gathered, &u.sharded}) {
      for (const Value* w : *list) {
        memory.give_home(memory.at(w));
        hold(memory, w);
      }
    }
  }
}

// Copies of small operands that are read at one place.
static bool load_scalars(Residency& memory, InflightExchange& r) {
  for (const Update& u : r.kernel->exchange().updates) {
    for (const UpdateKernel& uk : u.kernels) {
      for (const NestAccess& a : uk.nest.accesses) {
        if (a.view.stride[0] != 0 || r.scalars.contains(a.value)) {
          continue;
        }
        const Buffer& b = memory.at(a.value);
        const auto address = memory.take(b.bytes);
        if (!address) {
          return false;
        }
        r.memory.push_back(*address);
        r.scalars[a.value] = *address;
        memory.move(
            {place_of(b), vmem_addr(*address), b.bytes, elem_bytes(a.value->type.elem), r.id});
      }
    }
  }
  return true;
}

static void forget_places(InflightExchange& r) {
  r.memory.clear();
  r.buckets.clear();
  r.landing = {};
  r.back.clear();
  r.slots.clear();
  r.scalars.clear();
}

static void release(Residency& memory, InflightExchange& r) {
  for (const int64_t area : r.memory) {
    memory.give(area);
  }
  forget_places(r);
}

void finish_inflight(EmitContext& ctx) {
  if (ctx.inflight == nullptr) {
    return;
  }
  InflightExchange& r = *ctx.inflight;
  while (r.round < r.rounds()) {
    run_round(ctx, r);
  }
  release(ctx.memory, r);
  for (const Value* w : r.kernel->writes) {
    Buffer& b = ctx.memory.at(w);
    b.in_hbm = b.in_hbm || b.slot >= 0;
  }
  ctx.memory.held().clear();
  ctx.inflight = nullptr;
}

// True if the kernel reads what the exchange makes, or writes memory that it uses.
bool needs_inflight(EmitContext& ctx, const Kernel& k) {
  if (ctx.inflight == nullptr) {
    return false;
  }
  switch (k.kind) {
    case KernelClass::kLoop:
    case KernelClass::kContract:
    case KernelClass::kConcatenate:
    case KernelClass::kPad:
      break;
    default:
      return true;
  }
  const std::vector<const Value*>& made = ctx.inflight->kernel->writes;
  if (std::any_of(k.reads.begin(), k.reads.end(), [&](const Value* v) {
        return std::find(made.begin(), made.end(), v) != made.end();
      })) {
    return true;
  }
  const auto& held = ctx.memory.held();
  const auto root = [&](const Buffer& b) {
    return b.slot < 0 || b.scratch ? -1 : ctx.slots.root(b.slot);
  };
  return std::any_of(k.writes.begin(), k.writes.end(), [&](const Value* v) {
    const int slot = root(ctx.memory.at(v));
    return slot >= 0 &&
           std::any_of(held.begin(), held.end(), [&](const Buffer* b) { return root(*b) == slot; });
  });
}

bool start_inflight(EmitContext& ctx, const Kernel& k) {
  auto run = std::make_unique<InflightExchange>();
  InflightExchange& r = *run;
  const Op& op = *k.ops[0];
  r.kernel = &k;
  r.exchange = exchange_of(op, ctx.module.num_cores);
  r.bytes = ctx.kernels.piece;
  r.unit = elem_bytes(op.operand_type(0).elem);
  r.sum = sum_program(ctx.sink, op);
  r.id = ctx.ops.id(k);
  for (const Span& span : k.exchange().spans) {
    const auto update = std::find_if(k.exchange().updates.begin(), k.exchange().updates.end(),
                                     [&](const Update& u) { return u.value == span.value; });
    for (int64_t at = 0; at < span.bytes; at += r.bytes) {
      InflightExchange::Part p;
      p.shares = {{span.value, span.from + at, r.bytes, 0}};
      p.used = r.bytes;
      p.element = at / r.unit;
      p.update = update == k.exchange().updates.end() ? nullptr : &*update;
      r.parts.push_back(std::move(p));
    }
  }
  prepare_buffers(ctx.memory, r);
  ctx.run_moves();
  ctx.inflight = std::move(run);
  // Inside a region it ends at once: nothing may be on its way at a boundary.
  const bool overlaps = ctx.regions == 0;
  const auto next = std::find_if(ctx.kernels.kernels.begin(), ctx.kernels.kernels.end(),
                                 [&](const Kernel& other) { return other.order > k.order; });
  const bool alone = !overlaps || next == ctx.kernels.kernels.end() || needs_inflight(ctx, *next);
  for (r.lag = alone ? 2 : 1;; --r.lag) {  // with less VMEM beside other kernels
    Reservation attempt(ctx.memory);
    if (take_memory(ctx.memory, r) && load_scalars(ctx.memory, r)) {
      attempt.keep();
      break;
    }
    forget_places(r);
    if (r.lag == 1) {
      ctx.memory.held().clear();
      ctx.inflight = nullptr;
      return false;
    }
  }
  ctx.run_moves();
  stage_registers(ctx.sink, r.exchange);
  half_registers(ctx.sink, r);
  r.paced_items = ctx.sink.listing.items.size();
  r.paced_busy.fill(0);
  if (!overlaps) {
    finish_inflight(ctx);
  }
  return true;
}

}  // namespace tpu::compiler
